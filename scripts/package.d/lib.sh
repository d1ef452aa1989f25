# shellcheck shell=bash
# Functions and settings that scripts/package and its parts share. Source scripts/lib.sh first.

# shellcheck disable=SC2034 # used by the scripts that source this
work=$PWD/.build/package source=$PWD/.build/package/source

# The release of Debian that the packages are for.
# shellcheck disable=SC2034 # used by the scripts that source this
debian=bookworm

need_root() { [ "$(id -u)" -eq 0 ] || fail "needs root: $1"; }

# mirror: prints the archive that apt uses here.
mirror() {
    local uri
    # shellcheck disable=SC2016 # apt-get expands these
    uri=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 2>/dev/null |
        awk -v release="$debian" '$2 == release { print $1; exit }')
    printf '%s\n' "${uri:-http://deb.debian.org/debian}"
}

# debian_tree DIR [PACKAGE...]: makes a minimal Debian, and configures apt for packages and security updates.
debian_tree() {
    local directory=$1 site
    shift
    site=$(mirror)
    note "Making a Debian $debian in $directory from $site"
    quietly debootstrap --variant=minbase ${1:+--include="$(IFS=,; printf '%s' "$*")"} "$debian" "$directory" "$site"
    {
        printf 'deb %s %s main\n' "$site" "$debian" "$site" "$debian-updates"
        printf 'deb %s %s-security main\n' "${site%/debian*}/debian-security" "$debian"
    } >"$directory/etc/apt/sources.list"
    rm -rf "$directory"/var/cache/apt/archives/*.deb "$directory"/var/lib/apt/lists/*
}

# buildah_here ARGUMENT...: runs buildah with a store of images below .build, apart from the system's.
buildah_here() {
    if [ -z "${storage_driver:-}" ]; then
        # vfs works everywhere, and copies each layer in full.
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
