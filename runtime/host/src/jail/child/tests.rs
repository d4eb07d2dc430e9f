//! Attacks from a confined process. Each test starts itself again in a separate process, which
//! confines itself first.

use std::{
    env,
    ffi::OsStr,
    fs::{self, OpenOptions, Permissions},
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        net::{UnixListener, UnixStream},
        process::{CommandExt as _, ExitStatusExt as _},
    },
    path::Path,
    process::{self, Command, Output},
    thread,
    time::Duration,
};

use libc::{c_int, c_long};
use rustix::process::{Resource, Rlimit, Signal, getppid, kill_process, setrlimit};
use wasmtime::Engine;

use super::{Used, confine, threads, walls};
use crate::{Limits, engine_config, jail::CompileLimits};

/// More than one thread, also on a machine with one core.
const THREADS: usize = 2;
/// Set in the confined process: how it is confined.
const WALLS: &str = "SKYSAIL_TEST_WALLS";
/// Set in the confined process: the address of the test's TCP listener.
const LISTENER: &str = "SKYSAIL_TEST_LISTENER";

/// Attacks that Landlock alone prevents.
const OF_LANDLOCK: bool = true;
/// Attacks that only seccomp prevents.
const OF_SECCOMP: bool = false;

struct Attack {
    name: &'static str,
    landlock: bool,
    outcome: io::Result<()>,
}

/// All attacks that must fail in a confined process. Without confinement all of them succeed in
/// this order; otherwise their failure would prove nothing.
fn attacks(listener: SocketAddr) -> Vec<Attack> {
    let mut attacks = Vec::new();
    let mut tried = |name, landlock, outcome| attacks.push(Attack { name, landlock, outcome });
    tried("read a file", OF_LANDLOCK, fs::read("/etc/passwd").map(drop));
    tried("read its environment", OF_LANDLOCK, fs::read("/proc/self/environ").map(drop));
    tried("list a folder", OF_LANDLOCK, fs::read_dir("/").map(drop));
    tried("make a file in its folder", OF_LANDLOCK, OpenOptions::new().append(true).create(true).open("new").map(drop));
    tried("make a folder", OF_LANDLOCK, fs::create_dir("made"));
    tried("delete a folder", OF_LANDLOCK, fs::remove_dir("empty"));
    tried("open a file for writing", OF_LANDLOCK, OpenOptions::new().write(true).open("victim").map(drop));
    tried("truncate a file", OF_LANDLOCK, call(libc::SYS_truncate, [c"victim".as_ptr().addr(), 0, 0, 0]).map(drop));
    tried("change a file's mode", OF_SECCOMP, fs::set_permissions("victim", Permissions::from_mode(0o644)));
    tried("link to a file", OF_LANDLOCK, symlink("victim", "link"));
    tried("rename a file", OF_LANDLOCK, fs::rename("victim", "renamed"));
    tried("delete a file", OF_LANDLOCK, fs::remove_file("prey"));
    tried("listen", OF_LANDLOCK, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(drop));
    tried("connect", OF_LANDLOCK, TcpStream::connect(listener).map(drop));
    tried("open a UDP socket", OF_SECCOMP, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map(drop));
    tried("connect to a UNIX socket", OF_SECCOMP, UnixStream::connect("socket").map(drop));
    tried("make a pair of UNIX sockets", OF_SECCOMP, UnixStream::pair().map(drop));
    tried("fork", OF_SECCOMP, fork());
    let parent = getppid().unwrap();
    tried("signal its parent", OF_LANDLOCK, kill_process(parent, Signal::URG).map_err(io::Error::from));
    let parent = usize::try_from(parent.as_raw_nonzero().get()).unwrap();
    tried("change its parent's limits", OF_SECCOMP, call(libc::SYS_prlimit64, [parent, 7, 0, 0]).map(drop));
    tried("get hold of its parent", OF_SECCOMP, call(libc::SYS_pidfd_open, [parent, 0, 0, 0]).map(drop));
    tried("make memory executable", OF_SECCOMP, call(libc::SYS_mprotect, [0, 0, 4, 0]).map(drop));
    attacks
}

/// Attacks whose success would end the test, or that need privileges.
fn fatal_attacks() -> Vec<Attack> {
    let parent = usize::try_from(getppid().unwrap().as_raw_nonzero().get()).unwrap();
    vec![
        Attack { name: "read another's environment", landlock: true, outcome: fs::read("/proc/1/environ").map(drop) },
        Attack { name: "run a program", landlock: true, outcome: Err(Command::new("/bin/true").exec()) },
        Attack {
            name: "trace its parent",
            landlock: true,
            // PTRACE_SEIZE
            outcome: call(libc::SYS_ptrace, [0x4206, parent, 0, 0]).map(drop),
        },
    ]
}

/// System calls that the filter refuses, made with arguments without effect: the filter decides
/// before the kernel checks the arguments.
const REFUSED: [c_long; 52] = [
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_clone3,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_open_tree,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_memfd_create,
    libc::SYS_open_by_handle_at,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_prctl,
    libc::SYS_seccomp,
    libc::SYS_ioctl,
    libc::SYS_fcntl,
    libc::SYS_landlock_create_ruleset,
    // A call that no kernel has.
    9999,
];

#[expect(unsafe_code, reason = "an attacker makes system calls that no library offers")]
fn call(number: c_long, [a, b, c, d]: [usize; 4]) -> io::Result<c_long> {
    // SAFETY: the callers pass arguments with which the call does nothing to this process's memory.
    match unsafe { libc::syscall(number, a, b, c, d, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

fn fork() -> io::Result<()> {
    if call(libc::SYS_clone, [usize::try_from(libc::SIGCHLD).unwrap(), 0, 0, 0])? == 0 {
        // The forked process must run nothing of this process.
        call(libc::SYS_exit_group, [0, 0, 0, 0])?;
    }
    Ok(())
}

fn component() -> Vec<u8> {
    let text = r#"(component (core module (func (export "double") (param i32) (result i32) local.get 0 i32.const 2 i32.mul)))"#;
    wat::parse_str(text).unwrap()
}

/// Runs the attacks in the confined process and exits.
fn behind(walls: &OsStr) -> ! {
    let listener = env::var_os(LISTENER).unwrap().into_string().unwrap().parse().unwrap();
    let component = component();
    let missing = match walls.to_str().unwrap() {
        "none" => Vec::new(),
        "landlock" => walls::landlock().err().into_iter().collect(),
        "seccomp" => walls::seccomp().err().into_iter().collect(),
        _ => {
            let limits = CompileLimits { time: Duration::from_secs(60), ..CompileLimits::from(&Limits::default()) };
            confine(limits, &Used::now().unwrap(), threads::stacks(THREADS)).unwrap()
        }
    };
    for missing in missing {
        say("missing", &missing);
    }
    if walls == "abort" {
        process::abort();
    }
    let fatal = if walls == "none" { Vec::new() } else { fatal_attacks() };
    for Attack { name, landlock, outcome } in attacks(listener).into_iter().chain(fatal) {
        if landlock || walls != "landlock" {
            say(name, &outcome.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0).to_string());
        }
    }
    if walls == "all" || walls == "seccomp" {
        for number in REFUSED {
            let outcome = call(number, [0, 0, 0, 0]);
            say(
                &format!("call {number}"),
                &outcome.err().and_then(|error| error.raw_os_error()).unwrap_or(0).to_string(),
            );
        }
    }
    say("has a thread", &thread::spawn(|| 7).join().unwrap().to_string());
    let engine = Engine::new(&engine_config(Limits::default().stack_bytes)).unwrap();
    let (pool, _) = threads::start(THREADS).unwrap();
    say("compiles", &pool.install(|| engine.precompile_component(&component)).is_ok().to_string());
    process::exit(0)
}

/// Starts a new line, because the test harness writes to the same pipe.
fn say(what: &str, how: &str) {
    writeln!(io::stdout(), "\n> {what}: {how}").unwrap();
}

/// Runs the test of that name again in a confined process, in a folder with files to attack.
fn again(name: &str, walls: &str, folder: &Path) -> Output {
    fs::write(folder.join("victim"), "alive").unwrap();
    fs::write(folder.join("prey"), "alive").unwrap();
    fs::create_dir(folder.join("empty")).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let _socket = UnixListener::bind(folder.join("socket")).unwrap();
    Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("jail::child::tests::{name}"), "--nocapture", "--test-threads=1"])
        .env(WALLS, walls)
        .env(LISTENER, listener.local_addr().unwrap().to_string())
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The attacks of the confined process, each with its error number, 0 for success.
fn tried(name: &str, walls: &str) -> Vec<(String, i32)> {
    if let Some(walls) = env::var_os(WALLS) {
        behind(&walls);
    }
    let folder = tempfile::tempdir().unwrap();
    let output = again(name, walls, folder.path());
    let said = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("> ")?.rsplit_once(": ")).collect();
    assert!(output.status.success(), "{}: {said}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert_eq!(lines.split_off(lines.len() - 2), [("has a thread", "7"), ("compiles", "true")], "{said}");
    assert!(lines.len() > 15, "{said}");
    if walls != "none" {
        assert_eq!(fs::read_to_string(folder.path().join("victim")).unwrap(), "alive", "the victim");
    }
    lines
        .into_iter()
        .map(|(what, how)| match (what, how.parse()) {
            (what, Ok(number)) => (what.to_owned(), number),
            // A kernel without Landlock or seccomp cannot run this test.
            (what, Err(_)) => panic!("{what}: {how}"),
        })
        .collect()
}

#[track_caller]
fn all_fail(tried: Vec<(String, i32)>, with: &[i32]) {
    let through: Vec<_> = tried.into_iter().filter(|(_, number)| !with.contains(number)).collect();
    assert!(through.is_empty(), "{through:?}");
}

#[test]
fn without_confinement_every_attack_succeeds() {
    all_fail(tried("without_confinement_every_attack_succeeds", "none"), &[0]);
}

#[test]
fn a_confined_process_compiles_and_every_attack_fails() {
    all_fail(tried("a_confined_process_compiles_and_every_attack_fails", "all"), &[libc::ENOSYS]);
}

#[test]
fn the_filter_is_enough_without_landlock() {
    all_fail(tried("the_filter_is_enough_without_landlock", "seccomp"), &[libc::ENOSYS]);
}

#[test]
fn landlock_denies_files_tcp_and_signals_without_the_filter() {
    let name = "landlock_denies_files_tcp_and_signals_without_the_filter";
    all_fail(tried(name, "landlock"), &[libc::EACCES, libc::EPERM]);
}

#[test]
fn a_confined_child_can_abort() {
    let name = "a_confined_child_can_abort";
    if let Some(walls) = env::var_os(WALLS) {
        behind(&walls);
    }
    let folder = tempfile::tempdir().unwrap();
    let output = again(name, "abort", folder.path());
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_kernel_ends_a_child_whose_watch_thread_does_not_run() {
    let name = "the_kernel_ends_a_child_whose_watch_thread_does_not_run";
    if env::var_os(WALLS).is_some() {
        let limits = CompileLimits { time: Duration::ZERO, ..CompileLimits::from(&Limits::default()) };
        confine(limits, &Used::now().unwrap(), threads::stacks(THREADS)).unwrap();
        // As many threads as compile at once.
        let spinning = [(); 4].map(|()| {
            thread::spawn(|| {
                loop {
                    std::hint::spin_loop()
                }
            })
        });
        for thread in spinning {
            drop(thread.join());
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let output = again(name, "busy", folder.path());
    assert_eq!(output.status.signal(), Some(libc::SIGXCPU), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn without_more_threads_the_main_thread_compiles() {
    let name = "without_more_threads_the_main_thread_compiles";
    if env::var_os(WALLS).is_some() {
        let engine = Engine::new(&engine_config(Limits::default().stack_bytes)).unwrap();
        // Less memory than one stack.
        let max = Some(Used::now().unwrap().base + (6 << 20));
        setrlimit(Resource::Data, Rlimit { current: max, maximum: max }).unwrap();
        let (pool, stacks) = threads::start(THREADS).unwrap();
        assert_eq!((pool.current_num_threads(), stacks), (1, 0));
        pool.install(|| engine.precompile_component(&component())).unwrap();
        process::exit(0)
    }
    let folder = tempfile::tempdir().unwrap();
    let output = again(name, "no threads", folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_limit_of_memory_includes_shared_memory() {
    let name = "the_limit_of_memory_includes_shared_memory";
    if env::var_os(WALLS).is_some() {
        let map = |mib: usize, sharing: c_int| {
            let [protection, flags] = [libc::PROT_READ | libc::PROT_WRITE, sharing | libc::MAP_ANONYMOUS];
            let [protection, flags] = [protection, flags].map(|bits| usize::try_from(bits).unwrap());
            call(libc::SYS_mmap, [0, mib << 20, protection, flags]).map_err(|error| error.raw_os_error().unwrap())
        };
        map(2048, libc::MAP_PRIVATE).expect("there must be no limit yet");
        let limits = CompileLimits { memory_bytes: 64 << 20, ..CompileLimits::from(&Limits::default()) };
        confine(limits, &Used::now().unwrap(), 0).unwrap();
        map(32, libc::MAP_PRIVATE).expect("a size within the limit must be mapped");
        assert_eq!(map(64, libc::MAP_PRIVATE), Err(libc::ENOMEM), "a size above the limit");
        assert_eq!(map(2048, libc::MAP_SHARED), Err(libc::ENOMEM), "a shared mapping above the limit");
        process::exit(0)
    }
    let folder = tempfile::tempdir().unwrap();
    let output = again(name, "memory", folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
