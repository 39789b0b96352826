#!/usr/bin/env bash
# Prints the path of flights-200k.json, the public data that the end-to-end tests publish, and
# fetches it with npm first if it is not cached: 200,000 records from the npm package
# vega-datasets (BSD-3-Clause).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${NOTIFY_CACHE:-$HOME/.cache/notify-mirror}
version=3.2.1
tree=$cache/vega-datasets-$version
file=$tree/package/data/flights-200k.json

say() { printf '%s\n' "$*" >&2; }

if [ -f "$file" ]; then
	echo "$file"
	exit 0
fi
"$here/packages.sh" npm=npm
say "fetching vega-datasets $version with npm into $tree (18 MB)"
rm -rf "$tree.new"
mkdir -p "$tree.new"
if ! (cd "$tree.new" && npm pack --silent "vega-datasets@$version") >"$cache/flights.log" 2>&1; then
	tail -n 20 "$cache/flights.log" >&2
	say "npm did not work (all it said is in $cache/flights.log)"
	exit 1
fi
tar -xzf "$tree.new/vega-datasets-$version.tgz" -C "$tree.new" package/package.json package/data/flights-200k.json
rm "$tree.new/vega-datasets-$version.tgz"
rm -rf "$tree"
mv "$tree.new" "$tree"
echo "$file"
