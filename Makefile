# The few commands people type; scripts/ and meson do the work.
build:            ; scripts/build
test:             ; scripts/test
sim:              ; scripts/planted
fuzz:             ; scripts/fuzz 60
bench:            ; bench/run.sh
lint:             ; scripts/test format headers layers clang
format:           ; find src tests bench -name '*.[ch]' -print0 | xargs -0 clang-format-14 -i
prove:            ; scripts/prove
asan:             ; scripts/test build
docs: asan        ; scripts/docs build-asan/queen
.PHONY: build test sim fuzz bench lint format prove asan docs
