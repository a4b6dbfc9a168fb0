//! The secrets a server makes for itself at first start: files only their owner can read, never reached by a link.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The Ed25519 key tokens are signed with in development mode, PKCS#8 in PEM.
pub const SIGNING_KEY: &str = "signing.key";
/// 32 random bytes that sign tickets.
pub const SECRET_KEY: &str = "secret.key";

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("cannot read or make the key file {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("the key file {path} must be a plain file that only its owner can read (chmod 600)")]
    TooOpen { path: PathBuf },
    #[error("the key file {path} does not hold a usable key")]
    Malformed { path: PathBuf },
}

/// Reads `dir/name`, making it with `fresh` when it is not there. Two starters at once agree on one file.
///
/// Errors: I/O; a link, a directory or a file that others can read is refused.
pub fn read_or_make(dir: &Path, name: &str, fresh: impl FnOnce() -> Vec<u8>) -> Result<Vec<u8>, Fault> {
    let path = dir.join(name);
    let io = |source| Fault::Io { path: path.clone(), source };
    match open_plain(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let scratch = dir.join(format!("{name}.{}", random_hex::<8>()));
            let made = write_new(&scratch, &fresh());
            // A hard link fails when the name is taken, so whoever came first wins and nobody sees half a key.
            let linked = made.and_then(|()| match fs::hard_link(&scratch, &path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                other => other,
            });
            let _ = fs::remove_file(&scratch);
            linked.and_then(|()| File::open(dir)?.sync_all()).map_err(io)?;
        }
        Err(e) => return Err(io(e)),
        Ok(_) => {}
    }
    read(&path)
}

/// Reads a key file.
///
/// Errors: I/O; a link, a directory or a file that others can read is refused.
pub fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    // A PEM key of 8 192 bits is about 6.5 KiB.
    read_at_most(path, 16 * 1024)
}

/// As [`read`]; of a longer file no more than this.
pub fn read_at_most(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Fault> {
    let io = |source| Fault::Io { path: path.to_owned(), source };
    let mut file = open_plain(path).map_err(io)?;
    let meta = file.metadata().map_err(io)?;
    if !meta.is_file() || meta.mode() & 0o077 != 0 {
        return Err(Fault::TooOpen { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    Read::take(&mut file, bytes_max).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

/// 32 bytes for HMAC, made at first start.
pub fn secret(dir: &Path) -> Result<[u8; 32], Fault> {
    let bytes = read_or_make(dir, SECRET_KEY, || random::<32>().to_vec())?;
    bytes.try_into().map_err(|_| Fault::Malformed { path: dir.join(SECRET_KEY) })
}

pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0u8; N];
    SystemRandom::new().fill(&mut bytes).expect("the system's random source works");
    bytes
}

/// So many of them in hex.
pub fn random_hex<const N: usize>() -> String {
    random::<N>().iter().map(|b| format!("{b:02x}")).collect()
}

/// The DER inside one PEM block of this label.
/// Errors: `None` when the text is anything else.
pub fn pem_to_der(text: &[u8], label: &str) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let inner = text.strip_prefix(&format!("-----BEGIN {label}-----"))?;
    let inner = inner.strip_suffix(&format!("-----END {label}-----"))?;
    STANDARD.decode(inner.split_ascii_whitespace().collect::<String>()).ok()
}

pub fn der_to_pem(der: &[u8], label: &str) -> String {
    let body = STANDARD.encode(der);
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).map(|c| std::str::from_utf8(c).expect("base64 is ASCII")).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn open_plain(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32).open(path)
}

/// The whole file or what was there: written beside it, synced and renamed into its place. It is what the next reader finds; that
/// it still is after a crash takes [`sync_folder`].
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    // What a crash left of an earlier one is in the way of nobody.
    match fs::remove_file(beside) {
        Err(fault) if fault.kind() != io::ErrorKind::NotFound => return Err(fault),
        _ => {}
    }
    write_new(beside, bytes)?;
    fs::rename(beside, path)
}

/// What was put into the file's folder stays there.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::{Fault, SECRET_KEY, der_to_pem, pem_to_der, read_or_make, secret};

    #[test]
    fn a_secret_is_made_once_and_only_its_owner_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = secret(dir.path()).unwrap();
        assert_eq!(secret(dir.path()).unwrap(), first);
        let mode = fs::metadata(dir.path().join(SECRET_KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no scratch file stays");
    }

    #[test]
    fn a_link_and_a_file_others_can_read_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("elsewhere"), [7; 32]).unwrap();
        symlink(dir.path().join("elsewhere"), dir.path().join("linked")).unwrap();
        assert!(matches!(read_or_make(dir.path(), "linked", Vec::new), Err(Fault::Io { .. })));
        fs::write(dir.path().join("open"), [7; 32]).unwrap();
        fs::set_permissions(dir.path().join("open"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(read_or_make(dir.path(), "open", Vec::new), Err(Fault::TooOpen { .. })));
    }

    #[test]
    fn pem_gives_back_its_der() {
        let der: Vec<u8> = (0..200).collect();
        assert_eq!(pem_to_der(der_to_pem(&der, "PRIVATE KEY").as_bytes(), "PRIVATE KEY"), Some(der));
        assert_eq!(pem_to_der(b"-----BEGIN X-----\n-----END X-----", "PRIVATE KEY"), None);
    }
}
