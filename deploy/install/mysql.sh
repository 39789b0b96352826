#!/usr/bin/env bash
# Prints the path of a real MySQL server's binary, and fetches it first if it is not cached.
#
# Debian has MySQL in sid only, so a small sid system is laid under the cache directory
# (${NOTIFY_CACHE:-~/.cache/notify-mirror}, 500 MB) with debootstrap, from the mirror that
# apt uses here. Nothing of it runs at boot or needs a chroot: the printed program is a
# wrapper that starts sid's mysqld with sid's own loader and libraries, so that its
# directories, sockets and signals are ordinary ones.
set -euo pipefail
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${NOTIFY_CACHE:-$HOME/.cache/notify-mirror}
tree=$cache/mysql
wrapper=$tree/mysqld

say() { printf '%s\n' "$*" >&2; }

if [ -x "$wrapper" ] && "$wrapper" --no-defaults --version >/dev/null 2>&1; then
	echo "$wrapper"
	exit 0
fi
"$here/packages.sh" debootstrap=debootstrap,debian-archive-keyring
root=()
[ "$(id -u)" -eq 0 ] || root=(sudo)

# The mirror that apt uses for Debian itself; empty (debootstrap's own choice) where apt
# knows none, as on Ubuntu.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 2>/dev/null | grep -m 1 '^http' || true)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

say "fetching MySQL from Debian sid into $tree (about a minute, 500 MB)"
mkdir -p "$cache"
log=$cache/mysql.log
"${root[@]}" rm -rf --one-file-system "$tree" "$tree.new"
if ! "${root[@]}" debootstrap --keyring="$keyring" --variant=minbase \
	--include=mysql-server-core,mysql-client-core sid "$tree.new" ${mirror:+"$mirror"} >"$log" 2>&1; then
	tail -n 20 "$log" >&2
	say "debootstrap did not work (all it said is in $log)"
	exit 1
fi
"${root[@]}" rm -rf --one-file-system "$tree.new/var/cache/apt" "$tree.new/var/lib/apt/lists"
"${root[@]}" chown "$(id -u):$(id -g)" "$tree.new"
loader=$(cd "$tree.new" && find -H lib64 lib -maxdepth 1 -name 'ld-linux-*.so.*' 2>/dev/null | head -n 1 || true)
libraries=$(cd "$tree.new" && find usr/lib -maxdepth 1 -name '*-linux-gnu' | head -n 1)
if [ -z "$loader" ] || [ -z "$libraries" ]; then
	say "no loader or no libraries in $tree.new, which debootstrap made"
	exit 1
fi
cat >"$tree.new/mysqld" <<-WRAPPER
	#!/bin/sh
	# Made by deploy/install/mysql.sh. The caller's arguments come first because
	# --no-defaults must.
	r=$tree
	exec "\$r/$loader" --library-path "\$r/$libraries:\$r/usr/lib/mysql/private" "\$r/usr/sbin/mysqld" "\$@" \\
		--basedir="\$r/usr" --plugin-dir="\$r/usr/lib/mysql/plugin" \\
		--lc-messages-dir="\$r/usr/share/mysql" --character-sets-dir="\$r/usr/share/mysql/charsets"
WRAPPER
chmod +x "$tree.new/mysqld"
mv "$tree.new" "$tree"
say "fetched $("$wrapper" --no-defaults --version | sed 's/.*  *Ver /MySQL /; s/ for .*//')"
echo "$wrapper"
