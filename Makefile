# Every target that a person types has its help after "##".
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Servers are installed where an ordinary user's PATH does not look.
export PATH := $(CURDIR)/bin:$(PATH):/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin
# No C compiler is needed, and the programs are static.
export CGO_ENABLED ?= 0

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
# The packages whose tests talk to a database or to Kafka.
ENGINE_PACKAGES := ./canal/... ./mirror/... ./stream/... ./notifyd/...
# The stories; their programs want the machine for themselves.
ENGINE_STORIES := ./e2e ./e2e/engines ./e2e/stage
# The story that is told on every pair of a database and a Kafka.
FAULTS := ^TestMirrorIsExactWhateverFailsAroundIt$$
# Where the generated code goes.
OUT := .
# What go test says of packages that have no tests is noise.
QUIET := { grep --line-buffered -v '\[no test files\]' || true; }

.PHONY: help
help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: database build ## Run the whole path on this machine with sample data; Ctrl-C ends it.
	@exec bin/notify dev --demo

.PHONY: build
build: go ## Build the programs into bin/.
	@echo "building bin/notifyd bin/canald bin/notify"
	@go build -trimpath -o bin/ ./cmd/notifyd ./cmd/canald ./cmd/notify

.PHONY: test
test: check database browser build ## Check the code, and run all tests on a private database and an embedded Kafka.
	@echo "unit and integration tests"
	@NOTIFY_TEST_SHOTS=$(CURDIR)/bin/shots go test -count=1 -timeout 30m $$(go list ./... | grep -v /e2e) | $(QUIET)
	@echo "end-to-end tests"
	@NOTIFY_TEST_PROGRAMS=$(CURDIR)/bin go test -count=1 -timeout 30m -p 1 ./e2e/... | $(QUIET)

.PHONY: test-engines
test-engines: go database browser kcat build ## Run the same tests on real MySQL and on Apache Kafka (downloads 300 MB once).
	@mysql=$$(deploy/install/mysql.sh); kafka=$$(deploy/install/kafka.sh); \
	echo "tests on $$($$mysql --no-defaults --version | sed 's/.* Ver /MySQL /; s/ for .*//') and Apache $$(basename $$kafka)"; \
	go build -o bin/ ./e2e/engines/withkafka; \
	NOTIFY_TEST_MYSQLD=$$mysql NOTIFY_TEST_PROGRAMS=$(CURDIR)/bin bin/withkafka $$kafka bash -c ' \
		go test -count=1 -timeout 30m -p 2 -tags engines $(ENGINE_PACKAGES) && \
		go test -count=1 -timeout 30m -p 1 -tags engines $(ENGINE_STORIES)' | $(QUIET); \
	echo "the mirror under faults, MySQL to an embedded Kafka, MariaDB to Apache Kafka"; \
	NOTIFY_TEST_MYSQLD=$$mysql NOTIFY_TEST_PROGRAMS=$(CURDIR)/bin go test -count=1 -timeout 10m -run '$(FAULTS)' ./e2e; \
	NOTIFY_TEST_KAFKA_JARS=$$kafka NOTIFY_TEST_PROGRAMS=$(CURDIR)/bin go test -count=1 -timeout 10m -run '$(FAULTS)' ./e2e

.PHONY: soak
soak: database build ## Run the random tests with 50 times as many schedules.
	@NOTIFY_SOAK=50 go test -count=1 -timeout 6h -p 1 ./... | $(QUIET)

.PHONY: bench
bench: database browser build ## Measure throughput and latency; takes long and wants a quiet machine (ARGS=-h).
	@go build -o bin/ ./e2e/bench
	@exec bin/bench $(ARGS)

.PHONY: check
check: go ## Check format, vet, staticcheck and generated code, and that no test is skipped.
	@echo "checking format, vet, staticcheck, generated code"
	@files=$$(find . -name '*.go' -not -path './bin/*' | xargs gofmt -l); \
	[ -z "$$files" ] || { echo "type: gofmt -w" $$files; exit 1; }
	@! grep -rnE '\<[tb]\.Skip(f|Now)?\(' --include='*_test.go' . || { echo "a test may not be skipped"; exit 1; }
	@go vet ./...
	@go vet -tags engines ./e2e/...
	@go run $(STATICCHECK) ./...
	@rm -rf bin/_generated; mkdir -p bin/_generated; $(MAKE) generate OUT=bin/_generated
	@cd bin/_generated; find . -name '*.go' | while read -r f; do \
		diff -q -I '^//.*protoc  *v' "../../$$f" "$$f" >/dev/null || { echo "$$f is not current: type make generate"; exit 1; }; \
	done

.PHONY: vuln
vuln: go ## Look the dependencies up in the public database of vulnerabilities (needs the net).
	@go run $(GOVULNCHECK) ./...

.PHONY: generate
generate: go protoc ## Regenerate the API from its protobuf definition.
	@go build -o bin/ google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go
	@protoc -I notifyd/api --go_out=$(OUT) --go_opt=module=notifymirror \
		--connect-go_out=$(OUT) --connect-go_opt=module=notifymirror notifyd/api/notify/v1/notify.proto

# What the targets above need, installed when missing.

.PHONY: go
go:
	@command -v go >/dev/null || { echo "Go $$(sed -n 's/^go //p' go.mod) or newer is needed: install it, then type the same command again"; exit 1; }

.PHONY: database
database:
	@deploy/install/packages.sh mariadbd=mariadb-server-core,mariadb-client-core

.PHONY: browser
browser:
	@deploy/install/packages.sh chromium=chromium

.PHONY: kcat
kcat:
	@deploy/install/packages.sh kcat=kcat

.PHONY: protoc
protoc:
	@deploy/install/packages.sh protoc=protobuf-compiler

.PHONY: clean
clean: ## Remove what was built. Downloads stay in ~/.cache/notify-mirror.
	@rm -rf bin
