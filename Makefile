# make dev    builds everything and serves a shared terminal on http://127.0.0.1:8080
# make check  after each edit: builds, vets and tests what the change concerns, about a minute (SINCE=commit: since then)
# make test   runs every test, the real-browser ones included
# make build  puts the programs in bin/
# make test-security runs the tests of every case of the threat model and of every fault found, less than ten minutes (LONG=1: hours)
# make race   runs the end-to-end tests with race-built programs, about ten minutes
# make load   measures fan-out, echo and failover with bin/loadtest, about four minutes
# make soak   runs the mix of all loads for SOAK (default 10m; 4h before a release)
# make hops   builds programs that note when a key passes them, into bin/hops, for bin/loadtest run echo --hops
# make bench  runs the Go benchmarks: of packages, then of the programs, then chat's load (BENCH=ToolCall: benchmarks of that name)
# make proofs runs the long proofs of deploy/e2e/README.md, about a quarter of an hour
# make conformance  runs the official MCP suite against the agent's MCP server
# make fuzz   runs every fuzz target for FUZZTIME (default 20s)
# make test-agents installs real coding agents from npm, about 1.4 GB, has them use our tools, and talks to them
# make test-webclient gets the published web client of seed 002, 4 MB, and has it talk to our relay in a browser
# make lint   runs go vet, staticcheck and golangci-lint

GO       ?= go
FUZZTIME ?= 20s
SOAK     ?= 10m
BENCH    ?= .
REVISION := $(shell git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
LDFLAGS  := -X github.com/fairlead/fairlead/deploy/program.revision=$(REVISION)
PROGRAMS := ./relay/cmd/relay ./sandbox-agent/cmd/sandbox-agent ./deploy/controlplane/cmd/controlplane ./deploy/devstack/cmd/devstack \
            ./loadtest/cmd/loadtest

# What people take to their own computers: one file that needs nothing there.
LAPTOP   := ./deploy/source/cmd/fairlead-source

WEB      := relay/internal/console/web
ORACLE   := sandbox-agent/internal/screen/oracle
AGENTS   := deploy/e2e/agents
SUITE    := sandbox-agent/internal/mcp/conformance
WEBCLIENT := deploy/e2e/webclient
WEBCLIENT_SHA512 := 4dad100e69aea01abb502f3f539cb4f2e002129ef5555214dc36709eb1503072cf7a4ac3d3c103e96320273bf93a6bd69e3cb0796dbc57f2ec42caf62d683904
DIST     := relay/internal/console/dist
EXTENSION := deploy/extension/dist
EXTENDING := $(shell find deploy/extension/web/src deploy/extension/build -type f 2>/dev/null)
SOURCES  := $(shell find $(WEB)/src $(WEB)/core relay/internal/console/build -type f 2>/dev/null)

# What make test runs of deploy/e2e a second time, the programs built with the
# race detector: what has most at once.
RACED := ^(TestTwoPeopleShareATerminal|TestChaosWithoutPaceSetters|TestAgentInFront|TestManyJoin|TestDrainMovesTerminals|TestSecretThatComesLate|TestWatchFiles)$$

# SQLite is C made Go: the race detector takes half of a database test's time in
# it, and would find its faults, not ours. (What calls it is still observed.)
RACE := -race '-gcflags=modernc.org/...=-race=false'

# Debug information takes a third of the time that a test takes to link. Make test
# vets everything once, so the tests needn't be vetted again with each build mode.
LINK := -ldflags=-w -vet=off

# Tests wait a lot: one more at a time than there are processors.
WIDE := -p $(shell expr 1 + $$(nproc))

# Packages without a goroutine or a lock, as deploy/checks tests: the race
# detector finds nothing there, and takes eight times as long.
PURE := deploy/checks deploy/checks/changed deploy/checks/locks deploy/controlplane/internal/commands/signing \
        deploy/controlplane/internal/contents deploy/controlplane/internal/contents/tools deploy/controlplane/internal/oauth \
        deploy/controlplane/internal/policy deploy/controlplane/internal/private deploy/controlplane/internal/store \
        deploy/controlplane/internal/store/db deploy/extension deploy/extension/build deploy/grafana deploy/program/bundle deploy/program/pause loadtest/internal/usage \
        protocol protocol/audit protocol/bytelog protocol/chatsocket protocol/envseal protocol/eventlog protocol/lease protocol/op protocol/pace \
        relay/internal/console/build relay/internal/openapi relay/internal/rejects relay/internal/roster relay/internal/turn \
        sandbox-agent/internal/rendezvous sandbox-agent/internal/chat/control sandbox-agent/internal/chat/life sandbox-agent/internal/chat/masking \
        sandbox-agent/internal/history/dbread sandbox-agent/internal/history/rows sandbox-agent/internal/hostname sandbox-agent/internal/peer \
        sandbox-agent/internal/lifespan sandbox-agent/internal/provider sandbox-agent/internal/redact sandbox-agent/internal/route sandbox-agent/internal/screen \
        sandbox-agent/internal/screen/grid sandbox-agent/internal/screen/keyframe sandbox-agent/internal/toolbox tunnel/internal/backoff

# What measures the processor is tested alone, when all else is over.
SPEED := ^(TestCase59Speed|TestLastPage)$$

# What is large, and done by one goroutine, is tested without the race detector alone;
# with it memory isn't ours alone.
LARGE := ^(TestMany|TestMemoryAtOnce|TestAnIdleViewerCostsLittle)$$

# The end-to-end tests of cases and faults, about half of them.
FOUND := ^Test(Found|Case)

.PHONY: dev build check test test-packages test-pure test-speed test-programs test-found test-raced test-security race load soak hops bench proofs conformance fuzz test-agents test-webclient lint clean tools

dev: build
	@exec bin/devstack --listen 127.0.0.1:8080

build: $(DIST)/index.html $(EXTENSION)/panel/panel.html
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ $(PROGRAMS)
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o bin/ $(LAPTOP)

# The console is bundled from npm packages and embedded into the relay.
$(WEB)/node_modules/.stamp: $(WEB)/package.json $(WEB)/package-lock.json | tools
	@sh deploy/setup/need.sh npm
	cd $(WEB) && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(DIST)/index.html: $(WEB)/node_modules/.stamp $(SOURCES)
	$(GO) run ./relay/internal/console/build
	@touch $@

# The browser extension, of the same packages and building blocks, is embedded into
# the control plane's program, which writes it.
$(EXTENSION)/panel/panel.html: $(WEB)/node_modules/.stamp $(SOURCES) $(EXTENDING)
	$(GO) run ./deploy/extension/build
	@touch $@

# xterm.js without a browser, which the agent's terminal grid is compared with.
$(ORACLE)/node_modules/.stamp: $(ORACLE)/package.json $(ORACLE)/package-lock.json | tools
	@sh deploy/setup/need.sh npm
	cd $(ORACLE) && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

# The MCP conformance suite, with the Node.js 22 that it needs.
$(SUITE)/node_modules/.stamp: $(SUITE)/package.json $(SUITE)/package-lock.json | tools
	@sh deploy/setup/need.sh npm
	cd $(SUITE) && npm ci --no-audit --no-fund --loglevel=error
	@cd $(SUITE) && node_modules/.bin/node --version >/dev/null 2>&1 || npm rebuild node
	@touch $@

conformance: $(SUITE)/node_modules/.stamp
	$(GO) test -count=1 -v ./sandbox-agent/internal/mcp -run '^TestConformance$$' -mcp.suite $(CURDIR)/$(SUITE)/node_modules/.bin

tools:
	@sh deploy/setup/need.sh go git

# The end-to-end tests are make test's; what this does and for how long, it says.
check: $(DIST)/index.html $(EXTENSION)/panel/panel.html
	@$(GO) run ./deploy/checks/changed/cmd/check --go $(GO) $(if $(SINCE),--since $(SINCE))

test: $(DIST)/index.html $(EXTENSION)/panel/panel.html $(ORACLE)/node_modules/.stamp
	@sh deploy/setup/need.sh chromium cc postgres curl zsh dbus-daemon
	$(GO) vet ./...
	@$(MAKE) --no-print-directory -j2 -k -Oline test-programs test-packages test-found test-raced test-pure
	@$(MAKE) --no-print-directory test-speed

# The parts of make test, of which it runs two at the same time: programs wait a lot,
# but a machine may be half as fast as another, and with three of them there the tests
# saw how long things take. The end-to-end tests are two parts, each with stacks of its
# own. They go first wherever a processor is wanted. A part that hangs ends after half
# an hour.
test-packages:
	nice -n 5 $(GO) test $(RACE) $(LINK) $(WIDE) -timeout 30m $$($(GO) list ./... | grep -v -e /deploy/e2e $(PURE:%=-e '/fairlead/%$$'))

test-pure:
	nice -n 5 $(GO) test $(LINK) -timeout 30m -skip '$(SPEED)' $(PURE:%=./%)

test-speed:
	$(GO) test $(LINK) -timeout 5m -run '$(SPEED)' ./sandbox-agent/internal/redact ./sandbox-agent/internal/history/lineindex
	$(GO) test $(LINK) -timeout 5m -run '$(LARGE)' ./sandbox-agent/internal/cookies ./relay/internal/gateway

test-programs:
	$(GO) test $(LINK) -timeout 30m -skip '$(FOUND)' ./deploy/e2e/...

test-found:
	$(GO) test $(LINK) -timeout 30m -run '$(FOUND)' ./deploy/e2e

test-raced:
	$(GO) test $(RACE) $(LINK) -timeout 30m -run '$(RACED)' ./deploy/e2e
	$(GO) vet -tags otel ./deploy/program/telemetry ./deploy/e2e
	$(GO) vet -tags hops ./deploy/program/hops
	$(GO) test -timeout 5m -tags otel ./deploy/program/telemetry
	$(GO) test -timeout 5m -tags otel -run '^TestOneTraceForEachCommand$$' ./deploy/e2e

# A line for each case in deploy/e2e/README.md, which says what proves it.
test-security: $(DIST)/index.html $(EXTENSION)/panel/panel.html
	@sh deploy/setup/need.sh chromium
	@$(GO) run ./deploy/checks/battery/cmd/battery --go $(GO) $(if $(LONG),--long)

# The real programs with the race detector, all of it: three times as long.
race: $(DIST)/index.html $(EXTENSION)/panel/panel.html
	$(GO) test $(RACE) -timeout 40m ./deploy/e2e/...

load: build
	bin/loadtest run fanout --local --viewers 1000 --slo 'lost_bytes==0'
	bin/loadtest run echo --local
	bin/loadtest run failover --local --kills 20 --slo 'lost_bytes==0'

soak: build
	bin/loadtest run soak --local --duration $(SOAK)

# Programs that note when a key and its echo pass them, for bin/loadtest run echo --hops.
hops: $(DIST)/index.html $(EXTENSION)/panel/panel.html
	@mkdir -p bin/hops
	$(GO) build -tags hops -ldflags '$(LDFLAGS)' -o bin/hops/ $(PROGRAMS)

bench: build
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime 0.3s ./protocol/... ./relay/internal/replay ./tunnel ./sandbox-agent/internal/screen ./sandbox-agent/internal/spill ./sandbox-agent/internal/terminal ./sandbox-agent/internal/display ./sandbox-agent/internal/ledger ./sandbox-agent/internal/executor ./sandbox-agent/internal/redact ./sandbox-agent/internal/egress ./sandbox-agent/internal/broker ./sandbox-agent/internal/files/workspace ./sandbox-agent/internal/mcp ./sandbox-agent/internal/process ./sandbox-agent/internal/codingagent ./sandbox-agent/internal/chatlog ./sandbox-agent/internal/history/lineindex ./relay/internal/chathub ./loadtest/internal/pattern ./loadtest/internal/viewers ./tunnel/tunneltest/impair ./relay/internal/batchsend ./relay/internal/hub ./relay/internal/gateway
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime 3s ./deploy/e2e
ifeq ($(BENCH),.)
	bin/loadtest run chat --local --conversations 200 --slo 'chat_first_extra_p50<=15ms' --slo 'chat_first_extra_p99<=60ms' --slo 'chat_line_p50_ratio<=3' \
		--slo 'crowd_p99<=100ms' --slo 'lost_events==0' --slo 'replay<=300ms' --slo 'kill_next_p50<=500ms' --slo 'idle_socket<=40KiB'
	bin/loadtest run chat --local --conversations 20 --rate 20 --blocks 1 --replay 0 --kills 0 --idle 0 --slo 'crowd_p99<=100ms' --slo 'lost_events==0'
endif

proofs:
	$(GO) test -count=1 -v -timeout 30m ./sandbox-agent/internal/terminal -run 'TestAuthorityIsLinearizable|TestNothingAfterRevoke' -terminal.ops=100000 -terminal.revokes=1000000
	$(GO) test -count=1 -v -timeout 30m ./relay/internal/hub -run '^(TestLinearizable|TestFound11ManyComeBack)$$' -hub.ops=100000 -hub.people=500
	$(GO) test -count=1 -v -timeout 30m ./relay/internal/turn -run TestKeysInFlight -turn.rounds=1000000
	$(GO) test -count=1 -v -timeout 30m ./sandbox-agent/internal/executor -run TestHostileRelay -attempts=100000
	$(GO) test -count=1 -v -timeout 30m ./sandbox-agent/internal/link -run TestHostileRelay -attempts=100000
	$(GO) test -count=1 -v -timeout 30m ./sandbox-agent/internal/ledger -run TestKilled -kills=200
	$(GO) test -count=1 -v -timeout 30m ./sandbox-agent/internal/files/workspace -run TestSymlinkRace -workspace.race=60s
	$(GO) test -count=1 -v -timeout 30m ./sandbox-agent/internal/screen -run TestRandomStreams -oracle.n=3000
	$(GO) test -count=1 -v -timeout 30m ./sandbox-agent/internal/chat -run '^(TestSubscribe|TestLinear)$$' -chat.rounds=100000 -chat.calls=5000
	$(GO) test -count=1 -v -timeout 30m ./sandbox-agent/internal/chatlog -run '^TestSubscribeWhileAppending$$' -rounds=100000
	$(GO) test -count=1 -v -timeout 30m ./relay/internal/chathub -run '^TestRace$$' -rounds=100000
	$(GO) test -count=1 -v -timeout 30m ./sandbox-agent/internal/cookies -run '^(TestHostileRelay|TestKilled|TestKilledInGap)$$' -hostile=10000 -kills=200
	$(GO) test -count=1 -v -timeout 30m ./deploy/e2e -run '^(TestSyncSpeed|TestSyncWatchSpeed)$$' -sync.blocks=15
	$(GO) test -count=1 -v -timeout 30m ./deploy/e2e -run '^(TestChaos|TestDecisionAcrossAKilledRelay)$$' -chaos.kills=100 -approvals.kills=100
	$(GO) test -count=1 -v -timeout 40m ./deploy/e2e -run '^TestTalkAcross(Relay|Agent)Kills$$' -talk.kills=200 -talk.agentkills=50

# Coding agents as their makers publish them.
$(AGENTS)/node_modules/.stamp: $(AGENTS)/package.json | tools
	@sh deploy/setup/need.sh npm
	cd $(AGENTS) && npm install --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@

test-agents: $(DIST)/index.html $(EXTENSION)/panel/panel.html $(AGENTS)/node_modules/.stamp
	FAIRLEAD_AGENTS=$(CURDIR)/$(AGENTS) $(GO) test -count=1 -v -timeout 20m ./deploy/e2e -run '^TestReal(Agents|Talk)$$'

# Its pages alone: what else is in the package isn't run.
$(WEBCLIENT)/package/dist/index.html:
	@sh deploy/setup/need.sh npm
	@mkdir -p $(WEBCLIENT)
	cd $(WEBCLIENT) && npm pack --silent @cloudcli-ai/cloudcli@1.36.1 && echo '$(WEBCLIENT_SHA512)  cloudcli-ai-cloudcli-1.36.1.tgz' | sha512sum -c --quiet && tar xzmf cloudcli-ai-cloudcli-1.36.1.tgz

test-webclient: $(DIST)/index.html $(EXTENSION)/panel/panel.html $(WEBCLIENT)/package/dist/index.html
	@sh deploy/setup/need.sh chromium
	FAIRLEAD_WEB_CLIENT=$(CURDIR)/$(WEBCLIENT)/package $(GO) test -count=1 -v -timeout 5m ./deploy/e2e -run '^TestWebClient$$'

# What is found is made shorter by a hundred runs at most: otherwise that alone takes
# a minute of a target whose seeds are long.
fuzz:
	@$(GO) list ./... | while read pkg; do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg 2>/dev/null | grep '^Fuzz'); do \
	    echo "== $$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x $$pkg || exit 1; \
	  done; done

lint: $(DIST)/index.html $(EXTENSION)/panel/panel.html
	$(GO) vet ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	$(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...

clean:
	rm -rf bin $(WEBCLIENT) $(WEB)/node_modules $(ORACLE)/node_modules $(SUITE)/node_modules $(AGENTS)/node_modules
	find $(DIST) $(EXTENSION) -type f ! -name .gitignore -delete
