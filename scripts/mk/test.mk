# Tests. `make test` runs the parts below, each as a make target of its own, and
# closes with one table. Three run at a time, in this order: those that mostly wait
# beside one that mostly computes. They share nothing but what `make build` and
# the Python environment are, which are there before. A part that has nothing to
# test says so by a last line "part skipped: REASON".

TEST_PARTS := build test-vllm-fast test-python lint policy race e2e unit test-c sim abi test-packages

# The packages where several goroutines or processes meet.
RACE_PKGS := $(patsubst %,./%/...,$(wildcard daemon/ring daemon/session daemon/memory daemon/driver \
	daemon/transport daemon/peer daemon/admin daemon/metrics internal discovery)) \
	$(if $(wildcard daemon/*.go),./daemon)

SIM_PKG  := ./daemon/transfer/sim
SEEDS    ?= 2000
SIM_CAP  ?= 0
FUZZTIME ?= 60s
# Vet is among the rules of `make lint`.
GOTEST    = $(GO) test -json -vet=off -timeout 540s

CYCLES   ?= 1000
MINUTES  ?= 10

.PHONY: test policy unit race sim fuzz e2e chaos network hostile always

test: deps $(VENV)/.package ## everything that has to pass, in ten minutes or so on 2 cores: build, lint, all tests
	@MAKE='$(MAKE)' SIM_CAP=540s scripts/test.sh $(TEST_PARTS)

policy: ## rules about imports, cgo, unsafe, comments, words
	@$(GOTEST) ./test/policy | scripts/gotest.py

# A tree that go cannot list is broken; one whose list is empty has nothing to test.
unit: ## Go unit tests, with every fuzz target's seeds
	@packages=$$($(GO) list ./...); \
	packages=$$(grep -v -e '/test/' -e '/test$$' <<<"$$packages" || true); \
	[ -n "$$packages" ] || { echo 'part skipped: there is no Go package yet'; exit 0; }; \
	$(GOTEST) $$packages | scripts/gotest.py

race: ## Go tests of the concurrent packages under the race detector
ifeq ($(strip $(RACE_PKGS)),)
	@echo 'part skipped: there is no concurrent package yet'
else
	@CGO_ENABLED=1 $(GOTEST) -race $(RACE_PKGS) | scripts/gotest.py
endif

# However many seeds are asked for, they take their time: a run that is cut off would not say which seed it was at.
sim: ## the transfer machine under SEEDS=2000 seeds of trouble
ifeq ($(wildcard $(SIM_PKG)/*_test.go),)
	@echo 'part skipped: there is no $(SIM_PKG)'
else
	@$(GOTEST) -timeout $(SIM_CAP) -count=1 $(SIM_PKG) -run '^TestSim(Ends|Mad|Ragged|RaggedEnds)?$$' -seeds=$(SEEDS) | scripts/gotest.py
endif

fuzz: ## every fuzz target for FUZZTIME=60s
	@FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

e2e: build $(VENV)/.package ## tests under test/: several processes, real daemons
	@packages=$$($(GO) list ./test/...); \
	packages=$$(grep -v -e '/test/policy$$' <<<"$$packages" || true); \
	[ -n "$$packages" ] || { echo 'part skipped: test/ holds nothing but test/policy'; exit 0; }; \
	$(GOTEST) -count=1 $$packages | scripts/gotest.py

chaos: build ## engines and daemons killed and stopped CYCLES=1000 times, at random instructions
	@$(GO) test -count=1 -timeout 0 -v ./test/chaos -cycles=$(CYCLES)

# The namespaces lie in one that ends with the test, and so do their names.
network: build network-deps $(BUILD)/test/chaos.test ## two daemons whose packets are lost or refused, CYCLES=1000 times; as root
	@cd test/chaos && unshare --net --mount --propagation private $(SHELL) -c 'mount -t tmpfs netns /run && \
		exec $(ROOT)/$(BUILD)/test/chaos.test -test.v -test.timeout 0 -test.run TestNetwork -network $(CYCLES)'

# Tests that run where go does not: in namespaces, in a root of their own.
$(BUILD)/test/chaos.test $(BUILD)/test/root.test: $(BUILD)/test/%.test: always
	@mkdir -p $(@D)
	@$(GO) test -c -o $@ ./test/$*

# The daemon with Go's own checks of pointers compiled in, between engines whose library, and who themselves, run under ASan with UBSan.
hostile: build $(BUILD)/hostile/test-engine ## a daemon attacked by clients and peers for MINUTES=10
	@CGO_ENABLED=0 $(GO) build -gcflags=all=-d=checkptr -o $(BUILD)/hostile/kvpiped ./cmd/kvpiped
	@KVPIPE_BIN=$(CURDIR)/$(BUILD)/hostile $(GO) test -count=1 -timeout 0 -v ./test/hostile -minutes=$(MINUTES)

$(BUILD)/hostile/test-engine: $(C_ENGINE) $(wildcard test/cluster/engine/*.h) $(BUILD)/test/asan/lib.a $(C_HEADERS) scripts/mk/test.mk
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(CSTD) $(CWARN) -O1 -g -fno-omit-frame-pointer $(asan_flags) -Iinclude -Itest/cluster/engine $(C_ENGINE) -o $@ \
		$(BUILD)/test/asan/lib.a -pthread
