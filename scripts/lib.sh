# shellcheck shell=bash
# What the scripts share. Sourced first: it sets the shell's options, and goes to the top of the checkout.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# nginx and nghttpd live where only root's PATH leads.
PATH=$PATH:/usr/sbin:/sbin

fail() {
    printf '%s: %s\n' "$0" "$1" >&2
    exit 1
}

tell() { printf '%s\n' "$1" >&2; }

# False in a script that must not install packages unasked.
may_install=true

# What building needs, what the demo needs, and what the tests need: program or library, its name,
# Debian's package; for what only Debian's package can be: package, any name, and its own.
build_needs=(
    program:git:git program:g++:g++ program:pkg-config:pkg-config
    library:openssl:libssl-dev library:hiredis:libhiredis-dev library:libnghttp2:libnghttp2-dev
    library:yaml-0.1:libyaml-dev
)
demo_needs=(
    "${build_needs[@]}"
    program:redis-server:redis-server program:redis-cli:redis-tools program:openssl:openssl program:jq:jq
)
# shellcheck disable=SC2034 # for whoever sources this
unit_needs=("${build_needs[@]}" program:openssl:openssl)
# shellcheck disable=SC2034 # for whoever sources this
test_needs=(
    "${demo_needs[@]}"
    program:nginx:nginx-light program:nghttpd:nghttp2-server program:h2load:nghttp2-client program:curl:curl
    program:haproxy:haproxy program:tinyproxy:tinyproxy-bin program:shellcheck:shellcheck
    program:systemd-analyze:systemd program:script:bsdutils program:promtool:prometheus program:groff:groff-base
    program:codespell:codespell program:ip:iproute2
    # What deploy/producers is run with, and what judges by the JSON Schema of a job.
    package:python3-jsonschema:python3-jsonschema package:python3-redis:python3-redis
    package:python3-celery:python3-celery package:ruby-redis:ruby-redis package:ruby-sidekiq:ruby-sidekiq
    package:php-cli:php-cli package:php-redis:php-redis package:nodejs:nodejs package:node-redis:node-redis
    package:golang-go:golang-go package:golang-redigo:golang-github-gomodule-redigo-dev
    # The servers and clients of Tests/Foreign; aioapns comes from PyPI.
    package:golang-golang-x-net-dev:golang-golang-x-net-dev package:python3-h2:python3-h2
    package:python3-venv:python3-venv
    # The browser that uses the pages.
    package:chromium:chromium package:chromium-driver:chromium-driver package:python3-selenium:python3-selenium
)

# need NEED...: installs what is missing of them, and nothing where nothing is.
need() {
    local missing=() one kind name package
    for one in "$@"; do
        IFS=: read -r kind name package <<<"$one"
        case $kind in
            program) command -v "$name" >/dev/null || missing+=("$package") ;;
            package) has_package "$package" || missing+=("$package") ;;
            library) pkg-config --exists "$name" 2>/dev/null || missing+=("$package") ;;
        esac
    done
    [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
}

has_package() { [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# In a subshell of its own, so that its trap takes nobody else's place.
install_packages() (
    $may_install || fail "missing packages: run 'apt-get install --no-install-recommends $*', or give --install"
    command -v apt-get >/dev/null ||
        fail "missing, by the names of Debian's packages: $*; there is no apt-get here, so install them by hand"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "missing: $*; run this as root, or install sudo, or install them by hand"
        as_root=(sudo)
    fi
    tell "Installing $*"
    # Debian starts a server when its package is installed, and at each boot. Nobody asked for a public Redis or nginx.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap '"${as_root[@]}" rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
        "${as_root[@]}" chmod 755 "$policy"
    fi
    apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
    "${apt[@]}" update >&2 || tell "apt-get update failed; trying with the lists of packages that are here"
    "${apt[@]}" install --yes --no-install-recommends "$@" >&2 || fail "apt-get could not install: $*"
    if [ -d /run/systemd/system ]; then
        for package in "$@"; do
            case $package in
                redis-server) "${as_root[@]}" systemctl disable --quiet redis-server ;;
                nginx-light) "${as_root[@]}" systemctl disable --quiet nginx ;;
                haproxy) "${as_root[@]}" systemctl disable --quiet haproxy ;;
                prometheus) "${as_root[@]}" systemctl disable --quiet prometheus ;;
            esac
        done
    fi
)

need_swift() {
    [ -z "${BUILT_PROGRAMS:-}" ] || return 0
    command -v swift >/dev/null ||
        fail "swift is missing: install Swift 6.3 or later from https://www.swift.org/install/linux/, and put it on PATH"
    # What its own programs are linked with, and a bare Debian has not.
    swift_starts || install_packages libncurses6 libsqlite3-0
    swift_starts || {
        swift package --version >&2 || true
        fail "swift does not start; https://www.swift.org/install/linux/ lists the packages it needs on this system"
    }
}

swift_starts() { swift --version >/dev/null 2>&1 && swift package --version >/dev/null 2>&1; }

# build release|debug PRODUCT...: sets `bin` to where the programs are. With a directory in BUILT_PROGRAMS, nothing is built:
# scripts/test has done it.
build() {
    bin=${BUILT_PROGRAMS:-}
    [ -z "$bin" ] || return 0
    # The runtime inside the program: it needs no Swift where it runs, and calls into it without a detour.
    local configuration=$1 flags=() product
    shift
    [ "$configuration" = debug ] || flags=(-c release --static-swift-stdlib)
    for product in "$@"; do
        tell "Building $product ($configuration)"
        quietly swift build "${flags[@]}" --product "$product"
    done
    # shellcheck disable=SC2034 # for whoever sources this
    bin=$(swift build "${flags[@]}" --show-bin-path 2>/dev/null)
}

# quietly COMMAND...: shows the command's own progress on a terminal; elsewhere its last line every ten seconds if that has
# changed, and all output if it fails.
quietly() {
    if [ -t 2 ]; then
        "$@" >&2
        return
    fi
    local log status=0 progress
    log=$(mktemp)
    show_progress "$log" &
    progress=$!
    "$@" >"$log" 2>&1 || status=$?
    kill "$progress" 2>/dev/null || true
    wait "$progress" 2>/dev/null || true
    [ $status -eq 0 ] || cat "$log" >&2
    rm -f "$log"
    return $status
}

# show_progress LOG: until it is killed, or the script that started it is.
show_progress() {
    local line last=''
    # The sleep outlives this function when it is killed, so it must not keep a pipe of the caller open.
    while sleep 10 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        line=$(tail -n 1 "$1" 2>/dev/null | cut -c 1-100) || return 0
        if [ "$line" = "$last" ]; then continue; fi
        printf '  %s\n' "$line" >&2
        last=$line
    done
}
