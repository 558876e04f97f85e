package config

import "encoding/json"

// Where the program of a backup's Job finds what it needs, and where it reports.
const (
	// BackupConnDir is where the connection Secret of the index is mounted.
	BackupConnDir = "/conn"

	// BackupDir is where the volume with the artifacts is mounted.
	BackupDir = "/backup"

	// BackupReportFile is the file that becomes the message of the ended container in the pod's
	// status. Kubernetes keeps 4096 bytes of it.
	BackupReportFile = "/dev/termination-log"
)

// maxBackupError is how many bytes of an error a report has.
const maxBackupError = 1024

// BackupReport is what the program of a backup's Job says at its end.
type BackupReport struct {
	Keys   uint64 `json:"keys"`             // pairs of the artifact
	Bytes  int64  `json:"bytes"`            // its length
	Digest string `json:"digest,omitempty"` // its SHA-256, as the artifact ends with it, in hex
	Error  string `json:"error,omitempty"`  // why the program failed; empty = it did not
}

// Marshal is the report as the program writes it, well below what Kubernetes keeps.
func (r BackupReport) Marshal() ([]byte, error) {
	if len(r.Error) > maxBackupError {
		r.Error = r.Error[:maxBackupError]
	}
	return json.Marshal(r)
}

// Keys of the Secret with the credentials of an S3 bucket, which is mounted at BackupS3Dir.
const (
	S3AccessKey    = "AWS_ACCESS_KEY_ID"
	S3SecretKey    = "AWS_SECRET_ACCESS_KEY"
	S3SessionToken = "AWS_SESSION_TOKEN" // may be missing
	S3CA           = "ca.crt"            // of the server's certificate, in PEM; may be missing

	BackupS3Dir = "/s3"
)

// The Secret that artifacts are encrypted with has one key: identities of age, a line each.
const (
	BackupIdentities = "identities"

	BackupEncryptionDir = "/encryption" // where it is mounted
)
