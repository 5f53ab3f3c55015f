#!/bin/sh
# need.sh TOOL… makes sure that the tools a make target needs are there. As root
# on Debian it installs what is missing; elsewhere it says in one line what to
# install. Chromium and Postgres are needed by some tests only: without them those
# are skipped, except with CI=true, where that is a failure.
set -eu

install() { # package…
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
		echo "installing $*" >&2
		apt-get update -qq >/dev/null 2>&1 || true
		DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null 2>&1 && return 0
	fi
	return 1
}

has_postgres() { # the server's programs, which Debian keeps out of PATH
	for dir in /usr/lib/postgresql/*/bin; do
		[ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && return 0
	done
	command -v initdb >/dev/null 2>&1 && command -v postgres >/dev/null 2>&1
}

for tool in "$@"; do
	case $tool in
	chromium)
		command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 ||
			command -v google-chrome >/dev/null 2>&1 || install chromium || {
			if [ "${CI:-}" = true ]; then
				echo "chromium is missing and could not be installed: the browser tests can't run" >&2
				exit 1
			fi
			echo "chromium is missing: the browser tests are skipped" >&2
		}
		;;
	postgres)
		has_postgres || { install postgresql && has_postgres; } || {
			if [ "${CI:-}" = true ]; then
				echo "postgres is missing and could not be installed: the Postgres tests can't run" >&2
				exit 1
			fi
			echo "postgres is missing: the Postgres tests are skipped (Debian: postgresql)" >&2
		}
		;;
	zsh)
		command -v zsh >/dev/null 2>&1 || install zsh ||
			echo "zsh is missing: the test that sets variables in a running zsh is skipped" >&2
		;;
	dbus-daemon)
		command -v dbus-daemon >/dev/null 2>&1 || install dbus-daemon ||
			echo "dbus-daemon is missing: the tests of desktops' keyrings are skipped" >&2
		;;
	cc)
		command -v cc >/dev/null 2>&1 || install gcc libc6-dev ||
			{ echo "a C compiler is missing: go test -race needs one (Debian: gcc)" >&2; exit 1; }
		;;
	npm)
		command -v npm >/dev/null 2>&1 || install nodejs npm ||
			{ echo "npm is missing: the console is built with it (Node.js 20 or newer)" >&2; exit 1; }
		;;
	go)
		command -v go >/dev/null 2>&1 ||
			{ echo "go is missing: install Go 1.26 or newer" >&2; exit 1; }
		;;
	*)
		command -v "$tool" >/dev/null 2>&1 || install "$tool" ||
			{ echo "$tool is missing" >&2; exit 1; }
		;;
	esac
done
