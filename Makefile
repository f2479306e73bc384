# Everything by hand is in CONTRIBUTING.md; this file only joins the steps.
#
#   make demo [KEEP=1]   show a noisy neighbour being given a ceiling
#   make test            check and test everything
#   make bench           measure beside peers (about an hour)

CHANNEL := $(shell sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
DEMO_FLAGS := $(if $(KEEP),--keep) $(if $(OUTPUT),--output $(OUTPUT)) $(if $(DISK),--disk $(DISK))

.PHONY: all toolchain setup build demo test bench clean

all: build

# The pinned toolchain, where rustup manages toolchains and has not been told to fetch them by itself.
toolchain:
	@{ cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 || \
	    rustup toolchain install $(CHANNEL) --profile minimal --component rustfmt --component clippy

# The programs that tests, demo and benches run.
setup: toolchain
	cargo xtask setup

build: toolchain
	cargo build --release --package weir

demo: setup
	cargo xtask demo $(DEMO_FLAGS)

ifdef CI
# A build that is used once gains nothing from what would speed up the next one.
test: export CARGO_INCREMENTAL := 0
endif
# Most tests wait most of the time: for a drive, a client, or a second to pass.
test: export RUST_TEST_THREADS ?= 4
test: setup
	cargo xtask tidy
	cargo xtask test

bench: setup
	cargo xtask bench all

clean:
	cargo clean
