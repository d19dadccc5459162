# `make` alone lists the targets. Longer ones are scripts in internal/setup and
# internal/tools.

GO      ?= go
PREFIX  ?= /usr/local
DESTDIR ?=
PKG     ?= ./...
VERSION ?= $(shell GIT_OPTIONAL_LOCKS=0 git describe --tags --always --dirty 2>/dev/null)

# The directory of Go's own installer, which may be missing in PATH.
export PATH := $(PATH):/usr/local/go/bin
export GO

# The name of a file is data: make does not expand $ in it, and passes it in the
# environment, where no shell parses it.
override VIDEO := $(value VIDEO)
export VIDEO

# The same build settings for everything except tests, so that nothing is compiled
# twice: a static program without paths of this machine.
build_env = CGO_ENABLED=0 GOFLAGS="$$GOFLAGS -trimpath -buildvcs=false"
tool      = $(build_env) $(GO) tool -modfile=$(CURDIR)/internal/tools/go.mod

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: needs-run build ## publish VIDEO=file.mp4 (or a sample), from nothing to a playable result
	@internal/setup/run.sh

.PHONY: build
build: ## compile bin/cuelight
	@$(build_env) $(GO) build -ldflags '-X main.version=$(VERSION)' -o bin/cuelight ./cmd/cuelight

.PHONY: test
test: needs-test ## run all tests (PKG=./store ARGS='-run Claim -v': some, with the race detector)
	@$(if $(MODULE)$(filter-out ./...,$(PKG)),MODULE=$(MODULE) internal/setup/test.sh $(ARGS) $(PKG),internal/setup/test_all.sh $(ARGS))

.PHONY: test-quick
test-quick: needs-run ## run the short tests without the race detector
	@failed=; for module in $(or $(MODULE),. $(if $(filter ./...,$(PKG)),internal/e2e)); do \
		$(GO) test -C $$module -short $(ARGS) $(PKG) || failed=yes; \
	done; test -z "$$failed"

# VERSION is that of PostgreSQL here, so the build's default does not count. These packages
# send all SQL of a pipeline. The race detector would find nothing that it does not find on
# the installed version.
.PHONY: test-postgres
test-postgres: VERSION := $(if $(filter file,$(origin VERSION)),,$(value VERSION))
test-postgres: PKG = ./store/... ./notify
test-postgres: needs-test ## test store and notify on another PostgreSQL, VERSION=13|14|16|17|18
	@bin=$$(internal/setup/postgres.sh '$(VERSION)') && \
		CUELIGHT_PG_BIN=$$bin CUELIGHT_TEST_DATABASE_URL= $(GO) test -timeout 50m $(ARGS) $(PKG)

chaos = $(build_env) $(GO) build -C internal/proof/chaos -o ../../../bin/chaos . && exec bin/chaos

.PHONY: chaos
chaos: needs-test ## inject random faults for DURATION=60s (SEED=…) and check the result
	@$(chaos) $(if $(DURATION),-duration $(DURATION)) $(if $(SEED),-seed $(SEED))

.PHONY: failover
failover: needs-test ## kill the primary under load, promote the standby, check the result
	@$(chaos) -failover kill -duration 16s $(ARGS)

# A module of its own: River is no dependency of the product.
bench = $(build_env) $(GO) build -C bench -o ../bin/bench . && exec bin/bench

.PHONY: bench
bench: needs-test ## measure latency and throughput next to River and a poller (an hour)
	@$(bench) $(ARGS)

.PHONY: bench-quick
bench-quick: needs-test ## a smaller benchmark of three minutes; the last line is JSON
	@$(bench) -quick $(ARGS)

.PHONY: bench-once
bench-once: needs-test ## run every measurement once, briefly, to check that it works
	@$(bench) -once -out "" $(ARGS)

.PHONY: bench-media
bench-media: needs-test ## compare the size and quality of videos with others: make bench-media ARGS="film.mp4 …"
	@$(build_env) $(GO) build -C bench -o ../bin/bench-media ./media && exec bin/bench-media $(ARGS)

.PHONY: bench-test
bench-test: needs-test ## test the benchmark
	@MODULE=bench RACE=no internal/setup/test.sh -bench . -benchtime 1x $(ARGS) ./...

.PHONY: load
load: needs-test build ## measure the cost of 500 streams and 50 requests/s (four minutes)
	@$(build_env) $(GO) build -C internal/proof/load -o ../../../bin/load . && exec bin/load -program bin/cuelight $(ARGS)

.PHONY: sql
sql: ## generate schema.sql, triggers.sql and store/engine/video.sql
	@$(GO) run ./store/internal/gensql

.PHONY: vendor
vendor: ## download the scripts of pages that are listed in web/internal/vendor
	@$(GO) run ./web/internal/vendor

.PHONY: fmt
fmt: ## format the Go files
	@gofmt -w .

.PHONY: lint
lint: fmt-check vet staticcheck deadcode ## run all checks that are not tests

.PHONY: fmt-check
fmt-check:
	@unformatted=$$(gofmt -l .) && { test -z "$$unformatted" || { echo "make fmt would change:"; echo "$$unformatted"; exit 1; }; }

modules = . bench internal/e2e internal/proof/chaos internal/proof/load internal/storage/s3test/server

# The second run checks that the code compiles on macOS, the last one that programs which
# embed Cuelight compile on Windows.
.PHONY: vet
vet:
	@for module in $(modules); do \
		$(build_env) $(GO) vet -C $$module ./... && \
		GOOS=darwin $(build_env) $(GO) vet -C $$module ./... || exit 1; \
	done
	@GOOS=windows $(build_env) $(GO) build ./store/... ./stages ./notify

# Besides the defaults: every package and exported name has a comment.
.PHONY: staticcheck
staticcheck:
	@for module in $(modules); do \
		( cd $$module && $(tool) staticcheck -checks=inherit,ST1000,ST1020,ST1021,ST1022 ./... ) || exit 1; \
	done

.PHONY: deadcode
deadcode:
	@$(build_env) internal/tools/deadcode.sh

.PHONY: vulncheck
vulncheck: ## find known vulnerabilities (GOVULNDB=… for another database)
	@$(build_env) internal/tools/vulncheck.sh

.PHONY: check
check: ## run the checks of continuous integration
	@CI=$${CI:-false} .ci/run

.PHONY: install
install: ## copy bin/cuelight, its systemd units, manual pages and completions (PREFIX, DESTDIR)
	@test -x bin/cuelight || { echo "cuelight: bin/cuelight is missing; run make build"; exit 2; }
	@internal/setup/files.sh "$(DESTDIR)" "$(PREFIX)"

.PHONY: package
package: build ## build bin/*.deb and bin/*.rpm (VERSION=1.2.3)
	@$(build_env) VERSION="$(VERSION)" internal/setup/package.sh

.PHONY: clean
clean: ## remove build results (never data)
	@rm -rf bin

.PHONY: needs-run
needs-run:
	@internal/setup/run.sh check
	@internal/setup/install.sh run

.PHONY: needs-test
needs-test:
	@internal/setup/install.sh test

.PHONY: needs-browser
needs-browser: needs-test
	@CUELIGHT_TEST_BROWSER=1 $(GO) test -count=1 -run TestRequire_FindsBrowserAndModules ./internal/browsertest
