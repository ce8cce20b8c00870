host := `rustc -vV | sed -n 's/^host: //p'`

# List the recipes.
default:
    @just --list

# Everything that a change must pass.
check:
    scripts/test

fmt:
    cargo fmt --all

# Tests only; ARGS go to nextest, for example a part of a test's name.
test *ARGS:
    cargo nextest run --workspace --locked {{ ARGS }}

# With --target, even the host's own, the flag does not reach build scripts and macros, which cannot be static.
# A static release binary.
build:
    RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked --target {{ host }}

# A small local model at work between the walls.
demo:
    scripts/demo
