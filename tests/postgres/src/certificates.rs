//! A server that shows a certificate.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use selfsame_test_certificates::{Authority, Signed};

use crate::Server;

impl Server {
    /// Shows `own` from now on to whoever asks for encryption, and lets `certified` in, over TCP,
    /// by a certificate of `clients` only.
    pub fn encrypt(&self, own: &Signed, clients: &Authority, certified: &str) {
        let data = self.folder.join("data");
        self.write(&data.join("server.crt"), &own.certificate);
        self.write(&data.join("server.key"), &own.key);
        self.write(&data.join("clients.crt"), &clients.pem());
        let access = data.join("pg_hba.conf");
        let rules = fs::read_to_string(&access).expect("initdb wrote it");
        self.write(&access, &format!("hostssl all {certified} all cert\n{rules}"));
        self.sql("postgres", "alter system set ssl_ca_file = 'clients.crt'");
        self.sql("postgres", "alter system set ssl = on");
        self.sql("postgres", "select pg_reload_conf()");
        while self.sql("postgres", "show ssl") != "on" {
            sleep(Duration::from_millis(20));
        }
    }

    /// A file beside the server's, for a client.
    pub fn keep(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, text).expect("the folder is ours");
        path
    }

    fn write(&self, path: &Path, text: &str) {
        fs::write(path, text).expect("the folder is ours");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("ours");
        if let Some(owner) = self.owner {
            chown(path, Some(owner.user), Some(owner.group)).expect("root may give it away");
        }
    }
}
