# shellcheck shell=bash
# Functions that the scripts share. This file sets the shell's options and changes to the top of the checkout, so source it first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# nginx and nghttpd are in folders of root's PATH.
PATH=$PATH:/usr/sbin:/sbin

fail() {
    printf '%s: %s\n' "$0" "$1" >&2
    exit 1
}

note() { printf '%s\n' "$1" >&2; }

# False in a script that must not install packages without being asked.
may_install=true

# The needs of building, of the demo and of the tests, as KIND:NAME:PACKAGE. KIND is program, library (of pkg-config), file, package (of
# Debian) or swift (a library that Swift's programs load). PACKAGE is the Debian package to install. In Debian 13, libcurl4 is another name
# of libcurl4t64.
swift_needs=(
    swift:libcurl.so.4:libcurl4 swift:libncurses.so.6:libncurses6 swift:libsqlite3.so.0:libsqlite3-0 swift:libxml2.so.2:libxml2
)
build_needs=(
    "${swift_needs[@]}"
    program:git:git file:/etc/ssl/certs/ca-certificates.crt:ca-certificates program:g++:g++ program:pkg-config:pkg-config
    library:openssl:libssl-dev library:hiredis:libhiredis-dev library:libnghttp2:libnghttp2-dev
    library:yaml-0.1:libyaml-dev library:zlib:zlib1g-dev
)
demo_needs=(
    "${build_needs[@]}"
    program:redis-server:redis-server program:redis-cli:redis-tools program:openssl:openssl program:python3:python3
)
# shellcheck disable=SC2034 # used by the scripts that source this
package_needs=(
    "${build_needs[@]}" package:python3:python3 program:dpkg-shlibdeps:dpkg-dev program:strip:binutils package:tzdata:tzdata
)
# shellcheck disable=SC2034 # used by the scripts that source this
unit_needs=("${build_needs[@]}" program:openssl:openssl)
# shellcheck disable=SC2034 # used by the scripts that source this
test_needs=(
    "${demo_needs[@]}"
    program:nginx:nginx-light program:nghttpd:nghttp2-server program:h2load:nghttp2-client program:curl:curl
    program:haproxy:haproxy program:tinyproxy:tinyproxy-bin program:shellcheck:shellcheck
    program:systemd-analyze:systemd program:script:bsdutils program:promtool:prometheus program:groff:groff-base
    program:codespell:codespell program:ip:iproute2 program:jq:jq
    # For deploy/producers, and to validate jobs against their JSON Schema.
    package:python3-jsonschema:python3-jsonschema package:python3-redis:python3-redis
    package:python3-celery:python3-celery package:ruby-redis:ruby-redis package:ruby-sidekiq:ruby-sidekiq
    package:php-cli:php-cli package:php-redis:php-redis package:nodejs:nodejs package:node-redis:node-redis
    package:golang-go:golang-go package:golang-redigo:golang-github-gomodule-redigo-dev
    # For the clients of Tests/Foreign/http, which enqueue over HTTP.
    package:php-curl:php-curl package:python3-requests:python3-requests package:python3-httpx:python3-httpx
    # For the servers and clients of Tests/Foreign, and for scripts/apns-probe. aioapns is from PyPI.
    package:golang-golang-x-net-dev:golang-golang-x-net-dev package:python3-h2:python3-h2
    package:python3-prometheus-client:python3-prometheus-client
    package:python3-venv:python3-venv
)

# shellcheck disable=SC2034 # used by the scripts that source this
browser_needs=(
    program:redis-server:redis-server program:nginx:nginx-light program:openssl:openssl
    program:chromium:chromium program:chromedriver:chromium-driver package:python3-selenium:python3-selenium
    package:python3-redis:python3-redis package:python3-venv:python3-venv
)

# need NEED...: installs the packages of missing needs.
need() {
    local missing
    read -ra missing < <(missing_packages "$@")
    [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
}

# need_localhost: writes localhost to /etc/hosts if it does not resolve. debootstrap, unlike Debian's installer, does not write it.
need_localhost() {
    ! getent hosts localhost >/dev/null || return 0
    $may_install || fail "localhost does not resolve: write '127.0.0.1 localhost' to /etc/hosts, or give --install"
    note "Writing localhost to /etc/hosts"
    if [ "$(id -u)" -eq 0 ]; then
        printf '127.0.0.1 localhost\n' >>/etc/hosts
    else
        printf '127.0.0.1 localhost\n' | sudo tee -a /etc/hosts >/dev/null
    fi
}

# missing_packages NEED...: prints the Debian packages of missing needs, in one line.
missing_packages() {
    local missing=() one kind name package installed='' not_found=''
    # One query for all packages, because each query reads dpkg's whole list.
    if [[ "$*" = *package:* ]]; then
        installed=$(dpkg-query --show --showformat=' ${Package}:${db:Status-Status} ' 2>/dev/null) || true
    fi
    if [[ "$*" = *swift:* ]]; then not_found=$(libraries_not_found); fi
    for one in "$@"; do
        IFS=: read -r kind name package <<<"$one"
        case $kind in
            program) command -v "$name" >/dev/null || missing+=("$package") ;;
            package) [[ $installed == *" $package:installed "* ]] || missing+=("$package") ;;
            file) [ -e "$name" ] || missing+=("$package") ;;
            swift) [[ $not_found != *" $name "* ]] || missing+=("$package") ;;
            library) pkg-config --exists "$name" 2>/dev/null || missing+=("$package") ;;
        esac
    done
    printf '%s\n' "${missing[*]}"
}

# libraries_not_found: prints the libraries that Swift's programs need and this system lacks, each between spaces.
libraries_not_found() {
    local programs
    programs=$(toolchain)/usr/bin
    # Not every toolchain has all of these programs.
    { ldd "$programs"/{swift,swift-package,swift-frontend,swift-plugin-server,clang,lld} 2>/dev/null || true; } |
        awk '/not found/ { printf " %s ", $1 }'
}

# In a subshell, so that its trap does not replace the caller's.
install_packages() (
    $may_install || fail "missing packages: run 'apt-get install --no-install-recommends $*', or give --install"
    command -v apt-get >/dev/null ||
        fail "missing, by the names of Debian's packages: $*; there is no apt-get here, so install them by hand"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "missing: $*; run this as root, or install sudo, or install them by hand"
        as_root=(sudo)
    fi
    note "Installing $*"
    # By default Debian starts a server when its package is installed. This file prevents that.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap '"${as_root[@]}" rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
        "${as_root[@]}" chmod 755 "$policy"
    fi
    apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
    "${apt[@]}" update >&2 || note "apt-get update failed; trying with the lists of packages that are here"
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
    need "${swift_needs[@]}"
    swift_starts || {
        swift package --version >&2 || true
        fail "swift does not start; https://www.swift.org/install/linux/ lists the packages it needs on this system"
    }
    pin_versions
}

# need_swift_version VERSION: fails if another version of Swift is installed.
need_swift_version() {
    swift --version 2>&1 | grep -qF "Swift version $1 " ||
        fail "this needs Swift $1, not $(swift --version 2>&1 | head -n 1)"
}

# toolchain: prints the directory that has the toolchain's `usr`.
toolchain() { dirname "$(dirname "$(dirname "$(readlink -f "$(command -v swift)")")")"; }

swift_starts() { swift --version >/dev/null 2>&1 && swift package --version >/dev/null 2>&1; }

# The file with the versions of Swift and of all packages; scripts/versions describes it.
versions=scripts/versions.txt

# package_versions: prints NAME VERSION LICENCE URL for each Swift package.
package_versions() { awk '!/^#/ && $1 != "swift"' "$versions"; }

# resolved_versions FILE: prints URL VERSION for each package in a Package.resolved.
resolved_versions() {
    awk -F '"' '$2 == "location" { url = $4 } $2 == "version" && NF > 3 { print url, $4 }' "$1" | sort
}

# Writes the versions of $versions to Package.resolved, with the commits that the mirror in use has for them.
pin_versions() {
    local name version url commit separator='' wanted new
    wanted=$(package_versions | awk '{ print $4, $2 }' | sort)
    if [ -e Package.resolved ] && [ "$(resolved_versions Package.resolved)" = "$wanted" ]; then return; fi
    note "Resolving the versions in $versions"
    new=$(mktemp)
    {
        printf '{\n  "pins" : ['
        while read -r name version _ url; do
            # For an annotated tag, the last line is its commit, after the line of the tag object.
            commit=$(git ls-remote "$url" "refs/tags/$version" "refs/tags/$version^{}" "refs/tags/v$version" \
                "refs/tags/v$version^{}" | awk 'END { print $1 }')
            [ -n "$commit" ] || fail "$url has no version $version, which $versions names"
            printf '%s\n    {\n      "identity" : "%s",\n      "kind" : "remoteSourceControl",\n' "$separator" "$name"
            printf '      "location" : "%s",\n      "state" : {\n' "$url"
            printf '        "revision" : "%s",\n        "version" : "%s"\n      }\n    }' "$commit" "$version"
            separator=,
        done < <(package_versions)
        printf '\n  ],\n  "version" : 3\n}\n'
    } >"$new"
    mv "$new" Package.resolved
    chmod 644 Package.resolved
}

# A build uses exactly the versions in Package.resolved, or fails.
build_flags=(--force-resolved-versions)

# How users' programs are built:
# - Static linking: Swift need not be installed, and calls into its libraries are faster.
# - No checks for exclusive access at run time, which cost 5 % of a worker's CPU time. The tests run with these checks.
# - Optimization across modules, which saves 12 % of the CPU time; the compiler takes a fifth longer.
# - No table of exported symbols. Nothing reads it, and it is 3.4 MB of a worker of 40 MB.
# shellcheck disable=SC2034 # used by the scripts that source this
release_flags=("${build_flags[@]}" -c release --static-swift-stdlib -Xswiftc -enforce-exclusivity=unchecked
    -Xswiftc -cross-module-optimization -Xlinker --no-export-dynamic)

# How the demo and the tests of a module are built: without optimization, so that after an edit only few files are compiled. There is no
# debug information, so a crash names functions but no lines.
debug_flags=("${build_flags[@]}" -c debug --scratch-path .build-debug -debug-info-format none)

# How all tests are built: only the engine with optimization, so the compiler takes half as long. They have their own directory, because
# other flags compile everything again.
quick_flags=(
    "${build_flags[@]}" -c release --scratch-path .build-test -debug-info-format none
    -Xswiftc -enable-testing -Xswiftc -assert-config -Xswiftc Debug
)

# Writes the compiler of quick builds.
quick_compiler() {
    # A copy, because the package manager looks for the toolchain's libraries beside the compiler.
    local compiler=$PWD/.build-test/compiler resources
    resources=$(swiftc -print-target-info | sed -nE 's/.*"runtimeResourcePath": *"(.*)".*/\1/p')
    mkdir -p "$compiler/bin"
    cp scripts/test.d/swiftc "$compiler/bin"
    ln -sfn "${resources%/*}" "$compiler/lib"
    export SWIFT_EXEC=$compiler/bin/swiftc
}

# build release|quick|debug PRODUCT...: builds programs with release_flags, quick_flags or debug_flags, and sets `bin` to their
# directory. If BUILT_PROGRAMS names a directory, as in scripts/test, nothing is built and `bin` is that directory.
build() {
    bin=${BUILT_PROGRAMS:-}
    [ -z "$bin" ] || return 0
    local configuration=$1 flags=("${release_flags[@]}") product
    shift
    case $configuration in
        quick) flags=("${quick_flags[@]}") && quick_compiler ;;
        debug) flags=("${debug_flags[@]}") ;;
    esac
    for product in "$@"; do
        note "Building $product ($configuration)"
        quietly swift build "${flags[@]}" --product "$product"
    done
    unset SWIFT_EXEC
    # shellcheck disable=SC2034 # used by the scripts that source this
    bin=$(swift build "${flags[@]}" --show-bin-path 2>/dev/null)
}

# build_commit COMMIT PRODUCT...: builds users' programs of a commit in .build-against, and sets `bin_against` to their directory. It
# uses this checkout's versions of packages, so that only the commits differ. If the commit needs other packages, it uses the commit's.
build_commit() {
    local commit tree product flags=("${release_flags[@]}")
    commit=$(git rev-parse --verify --quiet "$1^{commit}") || fail "$1 is not a commit of this repository"
    tree=$PWD/.build-against/$commit
    shift
    if [ ! -e "$tree/.git" ]; then
        # If the directory was deleted, git still has its worktree.
        git worktree prune
        git worktree add --quiet --no-checkout --detach "$tree" "$commit"
    fi
    # This does not touch unchanged files, so a build compiles nothing again.
    git -C "$tree" checkout --quiet --force --detach "$commit"
    if [ ! -e "$tree/$versions" ]; then
        note "Using the newest versions of packages that $commit allows, because it names none"
        (cd "$tree" && rm -f Package.resolved && quietly swift package --scratch-path .build resolve)
    elif [ "$(package_versions | cut -d ' ' -f 1)" = "$(cd "$tree" && package_versions | cut -d ' ' -f 1)" ]; then
        cp Package.resolved "$tree"
    else
        note "Using the versions of packages of $commit, which needs others than this checkout"
        (cd "$tree" && pin_versions)
    fi
    flags+=(--package-path "$tree" --scratch-path "$tree/.build")
    for product in "$@"; do
        note "Building $product of ${commit:0:8} (release)"
        quietly swift build "${flags[@]}" --product "$product"
    done
    # shellcheck disable=SC2034 # used by the scripts that source this
    bin_against=$(swift build "${flags[@]}" --show-bin-path 2>/dev/null)
}

# module_maps DIR: prints the module maps of the C modules of a build.
module_maps() {
    find -L "$1" "$1/../../checkouts" "$PWD/Sources" \( -path '*/include/module.modulemap' -o -path '*.build/module.modulemap' \
        -o -path '*/Sources/C*/module.modulemap' \) 2>/dev/null | grep -v -- '-tool\.build/' | sort -u
}

# quietly COMMAND...: on a terminal, shows the command's output. Otherwise, every ten seconds it prints the last line of the output if it
# has changed. If the command fails, it prints all output.
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

# show_progress LOG: prints a build's progress, or the last line of another log, when it changes, until it or its script is killed.
show_progress() {
    local line last='' seconds=$SECONDS
    # If this function is killed, its sleep continues. Without the redirections, it would keep a pipe of the caller open.
    while sleep 10 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        line=$(tail -n 1 "$1" 2>/dev/null | cut -c 1-100) || return 0
        # A step of the package manager: [83/120] Compiling NIOCore …
        if [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\ ([A-Z][a-z]+\ [^ ]+) ]]; then
            line="$((100 * BASH_REMATCH[1] / BASH_REMATCH[2])) % after $((SECONDS - seconds)) s: ${BASH_REMATCH[3]}"
        fi
        if [ "$line" = "$last" ]; then continue; fi
        printf '  %s\n' "$line" >&2
        last=$line
    done
}
