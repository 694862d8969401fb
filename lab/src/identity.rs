//! Who is who in a lab: certificates, the key for service account tokens, users and kubeconfigs.
//!
//! Every program is a user of its own, so that the audit log tells who asked. All of them are `system:masters`: what
//! is under test is the operator's access, not that of the control plane.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// The users of a lab's token file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Admin,
    ControllerManager,
    Scheduler,
    Kwok,
    Karpenter,
}

impl User {
    const ALL: [Self; 5] = [
        Self::Admin,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kwok,
        Self::Karpenter,
    ];

    /// The name in the audit log, in RBAC and in the admission policy for KWOK.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::ControllerManager => "system:kube-controller-manager",
            Self::Scheduler => "system:kube-scheduler",
            Self::Kwok => "kwok",
            Self::Karpenter => "karpenter",
        }
    }

    fn file(self) -> &'static str {
        match self {
            Self::Admin => "kubeconfig",
            Self::ControllerManager => "kubeconfig.controller-manager",
            Self::Scheduler => "kubeconfig.scheduler",
            Self::Kwok => "kubeconfig.kwok",
            Self::Karpenter => "kubeconfig.karpenter",
        }
    }

    pub(crate) fn kubeconfig(self, dir: &Path) -> PathBuf {
        dir.join(self.file())
    }

    /// Not a secret: a lab listens on loopback only, lives for minutes, and its folder is closed to others.
    fn token(self) -> String {
        format!("lab-{}", self.name().replace(':', "-"))
    }
}

pub(crate) fn server_certificate(dir: &Path) -> PathBuf {
    dir.join("certs/server.crt")
}

pub(crate) fn server_key(dir: &Path) -> PathBuf {
    dir.join("certs/server.key")
}

pub(crate) fn authority(dir: &Path) -> PathBuf {
    dir.join("certs/ca.crt")
}

pub(crate) fn service_account_key(dir: &Path) -> PathBuf {
    dir.join("certs/service-accounts.key")
}

pub(crate) fn service_account_public_key(dir: &Path) -> PathBuf {
    dir.join("certs/service-accounts.pub")
}

pub(crate) fn tokens(dir: &Path) -> PathBuf {
    dir.join("certs/tokens.csv")
}

/// Writes all of it into a lab's folder, for an API server on this port.
pub(crate) fn write(dir: &Path, port: u16) -> io::Result<()> {
    fs::create_dir_all(dir.join("certs"))?;
    let certificates = certificates().map_err(io::Error::other)?;
    secret(&authority(dir), &certificates.authority)?;
    secret(&server_certificate(dir), &certificates.server)?;
    secret(&server_key(dir), &certificates.server_key)?;
    secret(&service_account_key(dir), &certificates.service_account_key)?;
    secret(
        &service_account_public_key(dir),
        &certificates.service_account_public_key,
    )?;
    let lines = User::ALL.map(|user| {
        format!(
            "{},{},{},system:masters\n",
            user.token(),
            user.name(),
            user.name()
        )
    });
    secret(&tokens(dir), &lines.concat())?;
    for user in User::ALL {
        kubeconfig(dir, port, &user.kubeconfig(dir), user.name(), &user.token())?;
    }
    Ok(())
}

/// Writes a kubeconfig for a user with a token.
pub(crate) fn kubeconfig(
    dir: &Path,
    port: u16,
    file: &Path,
    user: &str,
    token: &str,
) -> io::Result<()> {
    // JSON is YAML, and quotes what a path may hold.
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": authority(dir),
        }}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        "current-context": "lab",
    });
    secret(file, &format!("{config:#}\n"))
}

fn secret(file: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?;
    file.write_all(text.as_bytes())
}

struct Certificates {
    authority: String,
    server: String,
    server_key: String,
    service_account_key: String,
    service_account_public_key: String,
}

fn certificates() -> Result<Certificates, rcgen::Error> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "lab");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;
    let issuer = Issuer::new(authority, authority_key);

    let mut server = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
    server
        .distinguished_name
        .push(DnType::CommonName, "kube-apiserver");
    let server_key = KeyPair::generate()?;
    let server_certificate = server.signed_by(&server_key, &issuer)?;

    let service_account_key = KeyPair::generate()?;

    Ok(Certificates {
        authority: authority_certificate.pem(),
        server: server_certificate.pem(),
        server_key: server_key.serialize_pem(),
        service_account_key: service_account_key.serialize_pem(),
        service_account_public_key: service_account_key.public_key_pem(),
    })
}
