//! The names that the person uses lead inside to the same places, and no further.

use crate::scratch::{Scratch, link, make_dir, write};

for_every_caller!(the_persons_names_are_there, what_a_link_of_the_home_leads_to_keeps_its_secrets);

fn the_persons_names_are_there(scratch: &Scratch) {
    link("home", scratch.base.join("my-home"));
    link("work", scratch.base.join("my-work"));
    write(scratch.home.join(".gitconfig"), "seen\n");
    let [home, work] = ["my-home", "my-work"].map(|name| scratch.base.join(name));
    let script =
        format!("cat $HOME/.gitconfig {0}/sub/inside.txt; echo x > {0}/made; cat $HOME/private", work.display());
    for options in [&[][..], &["--workdir", work.to_str().unwrap()]] {
        let mut command = scratch.zwinger(&[&["run"], options, &["--", "sh", "-c", &script]].concat());
        command.env("HOME", &home).env("PWD", &work).current_dir(&work);
        let ended = scratch.start(command).end();
        assert_eq!(ended.text(), "seen\ninside\n", "{ended:?}");
        assert!(scratch.work.join("made").is_file() && !ended.shows(&scratch.secret), "{ended:?}");
        crate::scratch::remove(scratch.work.join("made"));
    }
    // A PWD that is wrong names nothing.
    let mut command = scratch.zwinger(&["run", "--", "pwd", "-P"]);
    command.env("PWD", &scratch.out);
    assert_eq!(scratch.start(command).end().text().trim(), scratch.work.to_str().unwrap());
}

fn what_a_link_of_the_home_leads_to_keeps_its_secrets(scratch: &Scratch) {
    let cargo = scratch.base.join("else/where");
    make_dir(scratch.base.join("else"));
    make_dir(&cargo);
    for (name, content) in [("env", "seen\n"), ("credentials.toml", &scratch.secret), ("kept", &scratch.secret)] {
        write(cargo.join(name), content);
    }
    link("kept", cargo.join("credentials"));
    link("../else/where", scratch.home.join(".cargo"));
    // The whole home directory, and a part of the workspace.
    link(".", scratch.home.join(".rustup"));
    link("../work/sub", scratch.home.join(".pyenv"));
    let ended = scratch.sh("cat $HOME/.cargo/env $HOME/.pyenv/inside.txt");
    assert_eq!((ended.code, ended.text().as_str()), (0, "seen\ninside\n"), "{ended:?}");
    let script = format!(
        "cd {}; cat credentials.toml credentials kept; cat $HOME/.cargo/cred*; cat $HOME/.rustup/private",
        cargo.display()
    );
    assert!(!scratch.sh(&script).shows(&scratch.secret));
    // Nothing of it is hidden from those who have no walls.
    assert!(scratch.sh_with(&["--backend", "none"], &script).shows(&scratch.secret));
    if scratch.caller.has_namespaces() {
        write(scratch.work.join("sub/.env"), &scratch.secret);
        let ended = scratch.sh("cat $HOME/.pyenv/.env sub/.env; grep -r . $HOME");
        assert!(!ended.shows(&scratch.secret), "{ended:?}");
    }
}
