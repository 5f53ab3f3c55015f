#!/bin/sh
# Runs COMMAND while a Centrifugo of its own takes connections on loopback.
. "$(dirname "$0")/common.sh"

version=v6.9.1
program=$cache/centrifugo-$version/centrifugo
if [ ! -x "$program" ]; then
	# Outside of this module; its sums are checked as those of any module.
	(cd "$cache" && GOFLAGS= GOBIN=$cache/centrifugo-$version go install "github.com/centrifugal/centrifugo/v6@$version")
fi
cat >"$run/config.json" <<CONFIG
{
  "http_server": {"address": "127.0.0.1", "port": $port},
  "http_api": {"key": "$key"},
  "client": {"allow_anonymous_connect_without_token": true},
  "channel": {"without_namespace": {"allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true}},
  "usage_stats": {"disabled": true},
  "log": {"level": "error"},
  "shutdown": {"timeout": "1s"}
}
CONFIG
# One processor, as devstack gives each program of ours on two.
GOMAXPROCS=${GOMAXPROCS:-1}
export GOMAXPROCS
serve centrifugo "$program" --config "$run/config.json"
unset GOMAXPROCS
beside "$@"
