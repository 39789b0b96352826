#!/usr/bin/env bash
# Installs Debian or Ubuntu packages whose command is missing.
#
#   packages.sh COMMAND=PACKAGE[,PACKAGE...]...
#
# Nothing is done, and no password asked for, when every COMMAND is there. mariadbd is taken
# from the packages that start no system service, where the distribution has them, and is not
# needed where mysqld is there.
set -euo pipefail
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null; }
known() { [ -n "$(apt-cache --names-only search "^$1\$")" ]; }

missing=() packages=()
for pair; do
	command=${pair%%=*}
	if have "$command" || { [ "$command" = mariadbd ] && have mysqld; }; then continue; fi
	missing+=("$command")
	IFS=, read -ra names <<<"${pair#*=}"
	packages+=("${names[@]}")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! have apt-get; then
	say "missing: ${missing[*]}; this system has no apt-get: install them, then type the same command again"
	exit 1
fi
root=()
if [ "$(id -u)" -ne 0 ]; then
	have sudo || { say "missing: ${missing[*]}; as root, type: apt-get install ${packages[*]}"; exit 1; }
	root=(sudo)
fi
say "missing: ${missing[*]}"
say "installing from apt: ${packages[*]}${root[*]:+ (sudo may ask for your password)}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() { "${root[@]}" "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2; say "this did not work: $*"; exit 1; }; }
quietly apt-get update
for i in "${!packages[@]}"; do
	case ${packages[i]} in
	mariadb-server-core | mariadb-client-core) known "${packages[i]}" || packages[i]=mariadb-server ;;
	esac
done
quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"
