#!/bin/sh
# Runs COMMAND while a ttyd of its own serves terminals on loopback, in each of
# which loadtest's source waits for the key.
. "$(dirname "$0")/common.sh"

PEER_SOURCE=${LOADTEST:-$(cd "$(dirname "$0")/../.." && pwd)/bin/loadtest}
PEER_KEY=$key
export PEER_SOURCE PEER_KEY
if [ ! -x "$PEER_SOURCE" ]; then
	echo "$PEER_SOURCE is missing: make build" >&2
	exit 1
fi

# packaged puts Debian's package with all its libraries below $1. It has a root and
# lists of its own, so that nothing of the system's changes; apt checks signatures.
packaged() {
	archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
	mkdir -p "$1/lists/partial" "$1/cache/archives/partial" "$1/files"
	: >"$1/status"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive ${TTYD_SUITE:-sid} main" >"$1/sources.list"
	apt="apt-get -qq -o Dir::State::lists=$1/lists -o Dir::State::status=$1/status -o Dir::Cache=$1/cache
		-o Dir::Etc::sourcelist=$1/sources.list -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User=root"
	TMPDIR=$run $apt update
	TMPDIR=$run $apt -y --no-install-recommends --download-only install ttyd
	for deb in "$1"/cache/archives/*.deb; do
		dpkg-deb -x "$deb" "$1/files"
	done
	# ttyd looks for this library by name, where LD_LIBRARY_PATH says. So do the
	# programs that it starts, which have the system's others: it lies alone.
	mkdir -p "$1/loop"
	cp "$1"/files/usr/lib/*/libwebsockets-evlib_uv.so "$1/loop/"
	rm -rf "$1/lists" "$1/cache"
}

if command -v ttyd >/dev/null; then
	set -- ttyd -- "$@"
else
	if [ ! -e "$cache/ttyd/loop/libwebsockets-evlib_uv.so" ]; then
		packaged "$cache/ttyd"
	fi
	LD_LIBRARY_PATH=$cache/ttyd/loop
	export LD_LIBRARY_PATH
	lib=$cache/ttyd/files/usr/lib/$(uname -m)-linux-gnu
	set -- "$(echo "$lib"/ld-linux-*.so.*)" --library-path "$lib" "$cache/ttyd/files/usr/bin/ttyd" -- "$@"
fi
program=
while [ "$1" != -- ]; do # paths of the cache, in which no blank may be
	program="$program $1"
	shift
done
shift
# ttyd would let anybody on this machine in; the key keeps them out.
serve ttyd $program -p "$port" -i lo -W -m 4 sh -c 'IFS= read -r given; [ "$given" = "$PEER_KEY" ] && exec "$PEER_SOURCE" source'
unset LD_LIBRARY_PATH PEER_KEY
beside "$@"
