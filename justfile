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
    cargo nextest run --workspace --locked {{ARGS}}

# A static release binary. --target, even for the host, keeps the flag away from build scripts and macros.
build:
    RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --locked --target {{host}}

# Twenty seconds of the real loop, walls and gate; no model, no network.
demo:
    cargo run --release --locked --quiet --package zwinger -- demo
