//! A share of the user's inotify(7) instances and watches: a command that took all of them would blind whoever else of the user
//! watches files, editors and zwinger among them.

/// Lets this user namespace have half of what the user may have (user_namespaces(7), /proc/sys/user). As far as it can be set; a
/// watch of zwinger's own that cannot be had ends the session in any case.
pub(super) fn leave_half() {
    for name in ["instances", "watches"] {
        let most = std::fs::read_to_string(format!("/proc/sys/fs/inotify/max_user_{name}"));
        if let Some(most) = most.ok().and_then(|most| most.trim().parse::<u64>().ok()) {
            let _ = std::fs::write(format!("/proc/sys/user/max_inotify_{name}"), most.div_ceil(2).to_string());
        }
    }
}
