#!/usr/bin/env bash
# Prints the directory with the jars of an Apache Kafka broker and its tools, and fetches them with Maven
# first if they are not cached. The version is that of kafka/pom.xml.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${NOTIFY_CACHE:-$HOME/.cache/notify-mirror}
version=$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$here/kafka/pom.xml")
jars=$cache/kafka-$version-tools

say() { printf '%s\n' "$*" >&2; }

"$here/packages.sh" java=default-jre-headless
if [ -d "$jars" ]; then
	echo "$jars"
	exit 0
fi
"$here/packages.sh" mvn=maven
say "fetching Apache Kafka $version into $jars (45 MB)"
mkdir -p "$cache"
log=$cache/kafka.log
rm -rf "$jars.new"
if ! mvn -B -ntp -f "$here/kafka/pom.xml" dependency:copy-dependencies \
	-DincludeScope=runtime -DoutputDirectory="$jars.new" >"$log" 2>&1; then
	tail -n 20 "$log" >&2
	say "maven did not work (all it said is in $log)"
	exit 1
fi
mv "$jars.new" "$jars"
echo "$jars"
