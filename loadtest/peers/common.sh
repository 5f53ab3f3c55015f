# What the peers' scripts share. They source it with their arguments, which are the
# command that runs while the peer does.
set -eu
umask 077

if [ $# -eq 0 ]; then
	echo "usage: $0 COMMAND...   (loadtest/peers/README.md)" >&2
	exit 2
fi
cache=${PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/fairlead-peers} # theirs, kept
port=${PEER_PORT:-18461}
most=${PEER_SECONDS:-3600} # no peer runs longer
run=$(mktemp -d)           # this run's
key=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
mkdir -p "$cache"
trap 'rm -rf "$run"' EXIT
trap 'exit 130' INT TERM

# serve NAME PROGRAM... starts the peer, which ends with this script.
serve() {
	name=$1
	shift
	timeout "$most" "$@" >"$run/log" 2>&1 &
	peer=$!
	trap 'kill "$peer" 2>/dev/null; wait "$peer" || true; rm -rf "$run"' EXIT
	printf '{"name":"%s","url":"http://127.0.0.1:%s","key":"%s"}\n' "$name" "$port" "$key" >"$run/peer.json"
}

# beside COMMAND... runs the command, which finds the peer by FAIRLEAD_PEER.
beside() {
	status=0
	FAIRLEAD_PEER=$run/peer.json "$@" || status=$?
	if ! kill -0 "$peer" 2>/dev/null; then
		echo "$name ended by itself:" >&2
		tail -n 5 "$run/log" >&2
	fi
	exit "$status"
}
