#!/usr/bin/env bash
# Brings a MySQL server into $1, out of the packages of Debian's newest suite with the libraries that they need; installs nothing.
set -euo pipefail
root=$(realpath -m "$1")
mkdir -p "$root"/apt/{lists/partial,cache/archives/partial}
: >"$root/apt/status"
archive=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null | sed -nE '/^(URIs:|deb )/s/.*(https?:[^ ]+).*/\1/p' | head -1 || true)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive sid main" >"$root/apt/sources.list"
apt() {
    apt-get -qq -o "Dir::Etc::sourcelist=$root/apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$root/apt/lists" \
        -o "Dir::Cache=$root/apt/cache" -o "Dir::State::status=$root/apt/status" -o APT::Sandbox::User=root "$@"
}
apt update
apt install --download-only --yes --no-install-recommends mysql-server-core >/dev/null
for each in "$root"/apt/cache/archives/*.deb; do dpkg -x "$each" "$root"; done
rm -r "$root/apt"
