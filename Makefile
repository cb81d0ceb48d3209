# uext4: ext4 in user space.
#   make            the release build, target/release/uext4
#   make demo       a tour: makes an image, mounts it, copies a tree in, unmounts, runs e2fsck
#   make test       what a change must pass; mounts for real: needs root, /dev/fuse and loop devices
#   make test-more  the rest: the crash explorer, seeded faults, minutes of direct I/O, the lab, cases, pjdfstest
#   make check      what needs neither root nor a mount: fmt, clippy, rustdoc, unit tests
#   make bench      measures it beside its peers, half an hour; make bench-quick: minutes. Needs root
#   make bench-micro  what the hot pieces cost (criterion)
#   make install    PREFIX=/usr/local, DESTDIR for packages; make uninstall takes it away again

PREFIX ?= /usr/local
# mount(8) and umount(8) look for their helpers in /sbin and nowhere else.
HELPERDIR ?= /sbin
CARGO ?= cargo
# What `make build` built.
BUILT = target/release
# How much of each whole-program test to run: quick (minutes) or full (hours).
SCALE ?= quick

BIN = $(DESTDIR)$(PREFIX)/bin
MAN = $(DESTDIR)$(PREFIX)/share/man
HELPERS = $(notdir $(wildcard mount-helper/mount.* mount-helper/umount.*))
MAN1 = $(notdir $(wildcard docs/man/*.1))
MAN8 = $(notdir $(wildcard docs/man/*.8))

TEST_TOOLS = /dev/fuse fusermount3:fuse3 mkfs.ext4:e2fsprogs e2fsck:e2fsprogs fio:fio \
	xfs_io:xfsprogs getfacl:acl getfattr:attr sqlite3:sqlite3 rsync:rsync git:git \
	stress-ng:stress-ng dbench:dbench jq:jq python3:python3 xxd:xxd losetup:mount \
	filefrag:e2fsprogs setpriv:util-linux mkfs.xfs:xfsprogs cc:gcc

.PHONY: all build demo test test-more unit-test mount-test crash-test direct-test lab-test known-faults seeded-faults crash hostile fuzz kill bench bench-quick bench-micro cases posix check fmt clippy doc install uninstall clean

all: build

build:
	$(CARGO) build --release
	$(CARGO) build --release -p uext4-lab

demo:
	scripts/need mkfs.ext4:e2fsprogs e2fsck:e2fsprogs fusermount3:fuse3 fio:fio
	$(MAKE) build
	UEXT4=target/release/uext4 scripts/demo

test: test-needs unit-test mount-test

# What takes too long for every change.
test-more: test-needs crash-test seeded-faults direct-test lab-test cases posix

.PHONY: test-needs
test-needs:
	@[ "$$(id -u)" = 0 ] || { echo "make test needs root: it mounts with the kernel's ext4 over loop devices to compare." >&2; \
		echo "Without root: make check." >&2; exit 1; }
	@scripts/need $(TEST_TOOLS)

# No root needed here.
unit-test:
	$(CARGO) test --profile checked --lib --bins --test layers
	$(CARGO) test --profile checked --doc

# Root, /dev/fuse and loop devices needed from here on. The mounts are made in a namespace of
# their own: nobody else holds on to them, and none is left behind.
APART = unshare --mount --propagation private

MOUNTED = UEXT4_TEST_SCALE=$(SCALE) $(APART) $(CARGO) test --profile checked

# Faults that are known and not mended yet, by the tests that show them (README, "Known faults"):
# run them with `make known-faults`.
KNOWN_FAULTS = threads_at_once fsx::around_the_page_cache starvation::readers_starve
# Minutes of fio: `make direct-test`.
LONG = engines:: flips:: fsx:: mix:: starvation:: stale:: verify::

mount-test: test-needs target/tools/bin/fsx
	$(MOUNTED) --test device_claim --test device_errors --test fuzz --test hostile --test model \
		--test mounted --test plumbing --test writeout
	$(MOUNTED) --test direct -- $(addprefix --skip ,$(LONG))

crash-test: test-needs
	$(MOUNTED) --test crash -- $(addprefix --skip ,$(KNOWN_FAULTS))

direct-test: test-needs target/tools/bin/fsx
	$(MOUNTED) --test direct -- $(addprefix --skip ,$(KNOWN_FAULTS))

known-faults: test-needs target/tools/bin/fsx
	$(MOUNTED) --test crash --test direct -- $(KNOWN_FAULTS)

lab-test: test-needs
	scripts/need chromium:chromium
	$(MOUNTED) -p uext4-bench-core -p uext4-lab -- --include-ignored

# Rules broken on purpose: the crash explorer must see each. A build of its own, so without optimisation.
seeded-faults:
	$(CARGO) test --features seeded-faults --test seeded

# What docs/crash.md tells of, as long as one likes.
# Every workload, image and mode, and random workloads; STATES of each. FROM=N goes on where it stopped.
STATES ?= 64
CRASH_RANDOM ?= 8
FROM ?= 1
crash:
	$(CARGO) build --profile checked
	nice $(APART) target/checked/uext4 crash run all $(foreach n,$(shell seq $(CRASH_RANDOM)),random:$n) \
		--matrix --states $(STATES) --kernel-every 60 --failures 3 --from $(FROM)

# Images that lie, for SECONDS; the fuzz target TARGET likewise (needs a nightly compiler and cargo-fuzz).
SECONDS ?= 3600
TARGET ?= image_write
hostile:
	UEXT4_HOSTILE_SECONDS=$(SECONDS) $(CARGO) test --profile checked --test hostile -- --nocapture

fuzz:
	mkdir -p fuzz/corpus/$(TARGET)
	cd fuzz && $(CARGO) +nightly fuzz run --sanitizer none $(TARGET) corpus/$(TARGET) seeds/$(TARGET) -- \
		-max_total_time=$(SECONDS) -timeout=10 -malloc_limit_mb=256 -rss_limit_mb=1024

# 500 rounds of kill -9.
kill: test-needs
	UEXT4_TEST_SCALE=full $(APART) $(CARGO) test --profile checked --test mounted kill:: -- --nocapture

cases: test-needs
	$(CARGO) build --profile checked
	DIFFCASE_TIMEOUT=600 UEXT4=target/checked/uext4 $(APART) tests/diffcase tests/cases/*.case

posix: test-needs target/tools/bin/pjdfstest
	$(CARGO) build --profile checked
	UEXT4=target/checked/uext4 PJDFSTEST=target/tools/bin/pjdfstest $(APART) tests/pjdfstest

target/tools/bin/pjdfstest:
	$(CARGO) install --locked --root target/tools pjdfstest@0.2.2

target/tools/bin/fsx:
	$(CARGO) install --locked --root target/tools fsx@0.3.2

check: fmt clippy doc unit-test

fmt:
	$(CARGO) fmt --all --check

# Images lie in UEXT4_BENCH_DIR (default: the temporary directory); results in target/bench.
bench bench-quick:
	scripts/need fuse2fs:fuse2fs fio:fio sqlite3:sqlite3 git:git losetup:mount mkfs.ext4:e2fsprogs /dev/fuse
	$(CARGO) build --release -p uext4
	$(CARGO) build --release -p uext4-bench
	$(APART) env UEXT4=$(CURDIR)/$(BUILT)/uext4 $(BUILT)/uext4-bench run $(if $(filter bench-quick,$@),--quick) $(BENCH_ARGS)

bench-micro:
	$(CARGO) bench -p uext4-micro

clippy:
	$(CARGO) clippy --workspace --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --no-deps

install: build
	install -D -m 755 $(BUILT)/uext4 $(BIN)/uext4
	install -D -m 755 $(BUILT)/uext4-lab $(BIN)/uext4-lab
	install -d $(DESTDIR)$(HELPERDIR)
	for h in $(HELPERS); do \
		sed 's|@BINDIR@|$(PREFIX)/bin|' mount-helper/$$h >$(DESTDIR)$(HELPERDIR)/$$h && \
		chmod 755 $(DESTDIR)$(HELPERDIR)/$$h || exit 1; done
	for m in $(MAN1); do install -D -m 644 docs/man/$$m $(MAN)/man1/$$m || exit 1; done
	for m in $(MAN8); do install -D -m 644 docs/man/$$m $(MAN)/man8/$$m || exit 1; done

uninstall:
	rm -f $(BIN)/uext4 $(BIN)/uext4-lab
	for h in $(HELPERS); do rm -f $(DESTDIR)$(HELPERDIR)/$$h; done
	for m in $(MAN1); do rm -f $(MAN)/man1/$$m; done
	for m in $(MAN8); do rm -f $(MAN)/man8/$$m; done

clean:
	$(CARGO) clean
