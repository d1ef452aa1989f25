# shellcheck shell=bash
# Functions and settings that scripts/package and its parts share. Source scripts/lib.sh first.

# shellcheck disable=SC2034 # used by the scripts that source this
work=$PWD/.build/package source=$PWD/.build/package/source

# The Debian releases for which there are packages, the newest last.
# shellcheck disable=SC2034 # used by the scripts that source this
debian_releases=(bookworm trixie)

# number_of RELEASE: prints the number of a Debian release.
number_of() {
    case $1 in
        bookworm) echo 12 ;;
        trixie) echo 13 ;;
        *) fail "unknown release of Debian: $1; packages are for ${debian_releases[*]}" ;;
    esac
}

# Prints the Debian release of this system; nothing if it is not a Debian.
running() (
    # shellcheck source=/dev/null
    . /etc/os-release
    [ "$ID" != debian ] || printf '%s\n' "${VERSION_CODENAME:-}"
)

need_root() { [ "$(id -u)" -eq 0 ] || fail "needs root: $1"; }

# mirror: prints the archive that apt uses here.
mirror() {
    local uri
    # shellcheck disable=SC2016 # apt-get expands these
    uri=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 2>/dev/null |
        awk -v release="$(running)" '$2 == release { print $1; exit }')
    printf '%s\n' "${uri:-http://deb.debian.org/debian}"
}

# debian_tree RELEASE DIR [PACKAGE...]: makes a minimal Debian, and configures apt for packages and security updates.
debian_tree() {
    local debian=$1 directory=$2 site
    shift 2
    site=$(mirror)
    note "Making a Debian $debian in $directory from $site"
    quietly debootstrap --variant=minbase ${1:+--include="$(IFS=,; printf '%s' "$*")"} "$debian" "$directory" "$site"
    {
        printf 'deb %s %s main\n' "$site" "$debian" "$site" "$debian-updates"
        printf 'deb %s %s-security main\n' "${site%/debian*}/debian-security" "$debian"
    } >"$directory/etc/apt/sources.list"
    rm -rf "$directory"/var/cache/apt/archives/*.deb "$directory"/var/lib/apt/lists/*
}

# unpacked RELEASE DIR download|install PACKAGE...: unpacks packages of a Debian into DIR without installing them; with `install`, also all
# packages that they need. It uses a separate state of apt. If DIR already has these packages, it does nothing.
unpacked() {
    local release=$1 directory=$2 command=$3 apt=$2/apt option package
    shift 3
    [ "$(cat "$directory/.complete" 2>/dev/null)" != "$*" ] || return 0
    rm -rf "$directory"
    mkdir -p "$apt"/{lists/partial,archives/partial}
    printf 'deb %s %s main\n' "$(mirror)" "$release" >"$apt/sources.list"
    : >"$apt/status"
    option=(
        -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$apt/lists"
        -o "Dir::Cache=$apt" -o "Dir::State::Status=$apt/status" -o APT::Sandbox::User=root -o APT::Get::List-Cleanup=0
    )
    note "Getting $* of Debian $release"
    apt-get -qq "${option[@]}" update
    if [ "$command" = install ]; then
        apt-get -qq "${option[@]}" -o Dpkg::Use-Pty=0 install --yes --no-install-recommends --download-only "$@" >/dev/null
    else
        (cd "$apt/archives" && apt-get -qq "${option[@]}" download "$@")
    fi
    for package in "$apt"/archives/*.deb; do dpkg-deb --extract "$package" "$directory"; done
    rm -rf "$apt"
    echo "$*" >"$directory/.complete"
}

# kept_tree RELEASE: prints the directory of a minimal Debian. It is made at the first call, and kept.
kept_tree() {
    local tree=$work/debian.$1
    need program:debootstrap:debootstrap >&2
    if [ ! -e "$tree/.complete" ]; then
        rm -rf "$tree"
        debian_tree "$1" "$tree" ca-certificates
        touch "$tree/.complete"
    fi
    printf '%s\n' "$tree"
}

# copy_tree RELEASE DIR: copies a minimal Debian to start processes in.
copy_tree() {
    rm -rf "$2"
    cp -a --reflink=auto "$(kept_tree "$1")" "$2"
    cp /etc/resolv.conf "$2/etc/resolv.conf"
    printf '127.0.0.1 localhost\n' >"$2/etc/hosts"
    printf '#!/bin/sh\nexit 101\n' >"$2/usr/sbin/policy-rc.d"
    chmod 755 "$2/usr/sbin/policy-rc.d"
}

# inside TREE [OPTION of unshare | FROM:TO]... -- COMMAND...: runs a command in the Debian in TREE. The file or directory FROM is mounted at
# TO. When the command ends, its processes end, too.
inside() {
    local tree=$1 options=() mounts=()
    shift
    while [ "$1" != -- ]; do
        case $1 in --*) options+=("$1") ;; *) mounts+=("$1") ;; esac
        shift
    done
    shift
    # shellcheck disable=SC2016 # the shell inside expands it
    unshare --mount --pid --fork --kill-child "${options[@]}" bash -c '
        set -e
        ip link set lo up
        tree=$1
        shift
        while [ "$1" != -- ]; do
            if [ -d "${1%%:*}" ]; then mkdir -p "$tree${1#*:}"; else touch "$tree${1#*:}"; fi
            mount --bind "${1%%:*}" "$tree${1#*:}"
            shift
        done
        mount -t proc proc "$tree/proc"
        exec chroot "$tree" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin:/opt/swift/usr/bin HOME=/root LC_ALL=C.UTF-8 TZ=UTC \
            DEBIAN_FRONTEND=noninteractive SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-}" "${@:2}"
    ' _ "$tree" "${mounts[@]}" -- "$@"
}

# Copies the repositories of the dependencies to $work/repositories. It also writes $work/gitconfig, which makes git read them from
# /usr/share/swift-repositories, so that a build in another Debian or in an image needs no network.
copy_repositories() {
    local repository url
    note "Copying the repositories of the dependencies"
    quietly swift package --package-path "$source" --scratch-path "$work/resolve" resolve
    rm -rf "$work/repositories" "$work/gitconfig"
    mkdir -p "$work/repositories"
    cp -R "$work"/resolve/repositories/. "$work/repositories/"
    for repository in "$work/repositories"/*/; do
        url=$(git --git-dir "$repository" config remote.origin.url)
        git config --file "$work/gitconfig" --add "url./usr/share/swift-repositories/$(basename "$repository").insteadOf" "$url"
    done
    git config --file "$work/gitconfig" --add safe.directory '*'
}

# buildah_here ARGUMENT...: runs buildah with a separate store of images below .build.
buildah_here() {
    if [ -z "${storage_driver:-}" ]; then
        # overlay does not work everywhere. vfs does, but copies each layer in full.
        storage_driver=overlay
        buildah --storage-driver overlay --root "$work/images.overlay" --runroot "$work/images.overlay.run" info \
            >/dev/null 2>&1 || storage_driver=vfs
    fi
    buildah --storage-driver "$storage_driver" --root "$work/images.$storage_driver" \
        --runroot "$work/images.$storage_driver.run" "$@"
}

# image_config NAME FIELD: prints a field of an image's configuration, such as .Entrypoint, as JSON.
image_config() { buildah_here inspect --type image "$1" | jq -c ".Docker.config | $2"; }

# unpacked_size NAME: prints the size of an image's files in bytes.
unpacked_size() {
    local container directory
    container=$(buildah_here from --pull=never "$1")
    directory=$(buildah_here mount "$container")
    du --summarize --block-size=1 "$directory" | cut -f 1
    buildah_here rm "$container" >/dev/null
}
