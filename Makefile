# Everything that is done with this repository. `make help` lists it.

# Examples: make bench COUNT=10 BENCH=Pick, make fuzz FUZZTIME=5m,
# make demo ARGS=-short, make demo KEEP=1
COUNT ?= 1
BENCH ?= .
BENCHTIME ?= 1s
BENCHPKG ?= ./snapshot ./snapshot/vllm ./tokenspeed ./load ./selector
FUZZTIME ?= 60s
SGLANG_VERSION ?= 0.5.23
TESTFLAGS ?=

# Works in every module: the modules of the tools are not those of the code.
STATICCHECK = go tool -modfile='$(CURDIR)/.ci/tools/go.mod' staticcheck
BENCHSTAT = go tool -modfile='$(CURDIR)/.ci/tools/go.mod' benchstat

# Recorded for each release: see bench/results.
COMPARED = ^Benchmark(HotPath|Request|LeastWorkModel|Reserve|Put|View|LoadSnapshot|LoadStat|Decode|Summary)$$

.PHONY: help deps demo ranks soak lab test chaos bench bench-compare bench-scale fuzz conformance clients api figures lint fmt tidy ci

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

deps: ## check Go, and install a C compiler and libzmq where they are missing
	@.ci/deps.sh

demo: deps ## compare the policies on simulated engines, with a status page (ARGS=-short: quicker; KEEP=1: leave it running, to be broken)
	cd examples && go run ./demo $(if $(KEEP),-keep) $(ARGS)

ranks: deps ## show what becomes of an idle rank (ARGS=-zero=false: its last word is believed)
	cd examples && go run ./ranks $(ARGS)

soak: deps ## leave two gateways under load for 3 minutes while everything goes wrong (ARGS='-duration 10m -seed 2 -v')
	cd examples && go run ./soak $(ARGS)

lab: ## simulate fleets and compare the policies (PLIMSOLL_TRACES=DIR: with public traces; ARGS='-seeds 1')
	@mkdir -p .cache
	cd examples && go run ./lab -json '$(CURDIR)/.cache/lab.json' -html '$(CURDIR)/.cache/lab.html' $(ARGS)

# The race detector needs cgo on most platforms, and is not there on all. With
# CGO_ENABLED=0 in the environment, what needs cgo is left out.
test: deps ## run all tests of all modules
	@if [ "$(CGO_ENABLED)" = 0 ]; then exec .ci/each '$(CURDIR)/.ci/nocgo.sh'; fi; \
	race=; if go list -race runtime/race >/dev/null 2>&1; then race=-race; else echo 'no race detector here: testing without it'; fi; \
	.ci/each go test $$race -timeout=15m $(TESTFLAGS) ./...

chaos: deps ## run a gateway on a network that fails in every way (Linux)
	@race=; if go list -race runtime/race >/dev/null 2>&1; then race=-race; fi; \
	cd chaos && go test $$race -tags=chaos -timeout=15m $(TESTFLAGS) ./...

bench: deps ## run the benchmarks (COUNT=, BENCH=, BENCHTIME=, BENCHPKG=)
	go test -run='^$$' -bench='$(BENCH)' -benchmem -benchtime=$(BENCHTIME) -count=$(COUNT) $(BENCHPKG)

bench-compare: COUNT = 10
bench-compare: deps ## measure what is recorded of the last release, and compare (COUNT=, BENCHTIME=)
	@mkdir -p .cache
	go test -run='^$$' -bench='$(COMPARED)' -benchmem -benchtime=$(BENCHTIME) -count=$(COUNT) $(BENCHPKG) >.cache/bench.txt || { cat .cache/bench.txt; exit 1; }
	$(BENCHSTAT) bench/results/latest.txt .cache/bench.txt

bench-scale: deps ## measure what it costs to listen to 64, 1,024 and 8,192 ranks (ARGS='-ranks 1024 -runs 5')
	cd bench && go run ./scale $(ARGS)

fuzz: deps ## run every fuzz target for FUZZTIME
	@.ci/fuzz.sh $(FUZZTIME)

conformance: deps ## run the engines' own publishers and encoders against this library (SGLANG_VERSION=)
	@SGLANG_VERSION='$(SGLANG_VERSION)' .ci/conformance.sh

clients: deps ## have OpenAI's Python client talk to the example gateway (LOADGEN=1: a load generator too)
	@LOADGEN='$(LOADGEN)' .ci/clients.sh

api: ## record the exported API in api/, after a change of it that is meant
	go test ./internal/archtest -run=ExportedAPI -count=1 -record

figures: deps ## compare allocations and instructions with the recorded ones (RECORD=1: record them)
	@.ci/figures.sh $(if $(RECORD),record)

lint: deps ## check formatting, go vet and staticcheck
	@unformatted=$$(git ls-files -z '*.go' | xargs -0 gofmt -l) && if [ -n "$$unformatted" ]; then echo 'not formatted (make fmt):'; echo "$$unformatted"; exit 1; fi
	@.ci/each go vet -tags=conformance,chaos,clients ./...
	@.ci/each $(STATICCHECK) -tags=conformance,chaos,clients ./...

fmt: ## format all Go files
	git ls-files -z '*.go' | xargs -0 gofmt -w

tidy: ## tidy every go.mod
	@.ci/each go mod tidy
	cd .ci/tools && go mod tidy

ci: ## what decides whether a change is good
	@.ci/run
