//! The files of a lab and the command line of each program. Starts nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{AuditLevel, Lab, LabError, io_error};
use crate::identity::{self, User};
use crate::programs::Program;
use crate::stages;

/// KWOK deletes pods by name, without a UID. The next pod of a `StatefulSet` has the same name, and would be deleted too.
const KWOK_POLICY: &str = include_str!("kwok-policy.yaml");

impl Lab {
    /// Everything that the programs read.
    pub(super) fn write_files(&self) -> Result<(), LabError> {
        let dir = self.dir();
        let folder = |name: &str| {
            fs::create_dir_all(dir.join(name))
                .map_err(io_error(format!("making {}", dir.join(name).display())))
        };
        let file = |name: &str, text: &str| {
            fs::write(dir.join(name), text)
                .map_err(io_error(format!("writing {}", dir.join(name).display())))
        };
        folder("logs")?;
        folder("bootstrap")?;
        identity::write(dir, self.ports.api_server)
            .map_err(io_error("writing certificates and kubeconfigs"))?;
        let level = match self.options.audit {
            AuditLevel::Metadata => "Metadata",
            AuditLevel::Request => "Request",
        };
        let policy = serde_json::json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            // One event a request: the one with the answer.
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [{"level": level}],
        });
        file("audit-policy.json", &policy.to_string())?;
        let stages = stages::render(
            &self.programs.kwok_stages(),
            self.options.pod_times,
            &self.options.more_stages,
        )?;
        file("stages.yaml", &stages)?;
        file("bootstrap/kwok-policy.yaml", KWOK_POLICY)?;
        if self.options.karpenter {
            let crds = self.programs.karpenter_crds();
            copy_files(&crds, &dir.join("bootstrap"))
                .map_err(io_error(format!("copying {}", crds.display())))?;
        }
        Ok(())
    }

    /// The command line of a program.
    pub(super) fn command(&self, program: Program) -> Command {
        let mut command = Command::new(self.programs.path(program));
        command.current_dir(self.dir());
        match program {
            Program::Etcd => self.etcd(&mut command),
            Program::ApiServer => self.api_server(&mut command),
            Program::ControllerManager => {
                command
                    .arg(flag(
                        "kubeconfig",
                        User::ControllerManager.kubeconfig(self.dir()),
                    ))
                    .arg(flag(
                        "service-account-private-key-file",
                        identity::service_account_key(self.dir()),
                    ))
                    .arg(flag("root-ca-file", identity::authority(self.dir())))
                    // The nodes are fake: nothing hands out pod networks.
                    .args([
                        "--use-service-account-credentials=false",
                        "--controllers=*,-node-ipam-controller",
                        // When the API server stands still for a while, or the machine is busy, KWOK renews the leases of nodes late. The
                        // node controller would then call their pods not Ready, and KWOK, unlike a kubelet, would never call them Ready
                        // again. The default is 50 s.
                        "--node-monitor-grace-period=30m",
                    ]);
                unelected(&mut command);
            }
            Program::Scheduler => {
                command.arg(flag("kubeconfig", User::Scheduler.kubeconfig(self.dir())));
                unelected(&mut command);
            }
            Program::Kwok => self.kwok(&mut command),
            Program::Karpenter => self.karpenter(&mut command),
        }
        command.args(self.options.arguments.get(&program).into_iter().flatten());
        command
    }

    fn etcd(&self, command: &mut Command) {
        let client = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        // Data that nobody needs after the run is not worth waiting for a disk.
        command
            .args(["--data-dir=etcd", "--unsafe-no-fsync"])
            .args([
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=default={peer}"),
            ]);
    }

    fn api_server(&self, command: &mut Command) {
        let dir = self.dir();
        command
            .arg(format!(
                "--etcd-servers=http://127.0.0.1:{}",
                self.ports.etcd
            ))
            .arg(format!("--secure-port={}", self.ports.api_server))
            .arg(flag("cert-dir", dir.join("certs")))
            .arg(flag("tls-cert-file", identity::server_certificate(dir)))
            .arg(flag("tls-private-key-file", identity::server_key(dir)))
            .arg(flag(
                "service-account-key-file",
                identity::service_account_public_key(dir),
            ))
            .arg(flag(
                "service-account-signing-key-file",
                identity::service_account_key(dir),
            ))
            .arg(flag("token-auth-file", identity::tokens(dir)))
            .arg(flag("audit-log-path", self.audit_log()))
            .args([
                "--audit-policy-file=audit-policy.json",
                // Never rotated: a judge reads it from one end to the other.
                "--audit-log-maxsize=0",
                "--bind-address=127.0.0.1",
                // Without these it looks for the machine's address, and does not start where there is no network.
                "--advertise-address=127.0.0.1",
                "--endpoint-reconciler-type=none",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--authorization-mode=RBAC",
                "--allow-privileged",
            ]);
    }

    fn kwok(&self, command: &mut Command) {
        command
            .arg(flag("kubeconfig", User::Kwok.kubeconfig(self.dir())))
            .arg(format!("--server-address=127.0.0.1:{}", self.ports.kwok))
            .args([
                "--config=stages.yaml",
                "--manage-all-nodes=false",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                "--node-lease-duration-seconds=40",
                "--node-ip=127.0.0.1",
            ]);
    }

    fn karpenter(&self, command: &mut Command) {
        command
            .env("KUBECONFIG", User::Karpenter.kubeconfig(self.dir()))
            .env("SYSTEM_NAMESPACE", "kube-system")
            .env("KARPENTER_SERVICE", "karpenter")
            .env("DISABLE_LEADER_ELECTION", "true")
            .env("KUBERNETES_MIN_VERSION", "1.19.0-0")
            .env("METRICS_PORT", self.ports.karpenter_metrics.to_string())
            .env("HEALTH_PROBE_PORT", self.ports.karpenter_health.to_string())
            // The defaults (1 s, 10 s) are for clouds where a launch costs more than a wait.
            .env("BATCH_IDLE_DURATION", "200ms")
            .env("BATCH_MAX_DURATION", "2s")
            .env("FEATURE_GATES", &self.options.karpenter_feature_gates);
        if let Some(types) = &self.options.karpenter_instance_types {
            command.env("INSTANCE_TYPES_FILE_PATH", types);
        }
    }
}

/// What controller-manager and scheduler have in common: alone, unseen, and not held back by a client-side limit.
fn unelected(command: &mut Command) {
    command.args([
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]);
}

fn flag(name: &str, path: impl AsRef<Path>) -> std::ffi::OsString {
    let mut flag = std::ffi::OsString::from(format!("--{name}="));
    flag.push(path.as_ref());
    flag
}

fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
