//! What a program outside the crate cannot even be compiled to do. Each attempt has a twin that differs from it in little more
//! than the attempt and is compiled here, so that no other mistake makes the attempt fail.

/// What is permitted, beside each attempt in the same directory.
mod forge {
    #[path = "alter_twin.rs"]
    mod alter;
    #[path = "build_twin.rs"]
    mod build;
    #[path = "clone_twin.rs"]
    mod clone;
    #[path = "open_path_twin.rs"]
    mod open_path;
    #[path = "restore_twin.rs"]
    mod restore;
    #[path = "run_twin.rs"]
    mod run;
    #[path = "spend_twin.rs"]
    mod spend;
    #[path = "store_twin.rs"]
    mod store;
    #[path = "twice_twin.rs"]
    mod twice;
    #[path = "unwrap_raw_twin.rs"]
    mod unwrap_raw;

    pub(super) fn twins() {
        alter::main();
        build::main();
        clone::main();
        open_path::main();
        restore::main();
        run::main();
        spend::main();
        store::main();
        twice::main();
        unwrap_raw::main();
    }
}

#[test]
fn permission_cannot_be_forged_and_raw_output_cannot_leave() {
    forge::twins();
    trybuild::TestCases::new().compile_fail("tests/forge/*_attempt.rs");
}
