//go:build e2e && e2efull && ownnodes

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"filippo.io/age"
)

// claim makes a volume on a node, and the claim "dumps" of it.
func (s *space) claim() {
	s.Helper()
	dir := "/var/lib/" + s.namespace
	s.node("exec", "1", "sh", "-c", "mkdir -p "+dir+" && chmod 0777 "+dir)
	s.apply(fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  hostPath: {path: %[2]s}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node1]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: dumps}
spec:
  storageClassName: ""
  volumeName: %[1]s
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
`, s.namespace, dir))
	s.Cleanup(func() {
		if out, err := s.try("delete", "pv", s.namespace, "--wait=false"); err != nil {
			s.Errorf("delete the volume: %v: %s", err, out)
		}
		s.node("exec", "1", "rm", "-rf", dir)
	})
}

const backupManifest = `
apiVersion: dmindex.io/v1alpha1
kind: DMBackup
metadata: {name: b}
spec:
  indexName: x
  deletionPolicy: Delete
  storage: {volume: {claimName: dumps}, encryptionSecret: {name: identities}}
`

// TestBackup dumps an index to a volume, encrypted, deletes the index, and makes a new one from the
// backup: before it is available nobody reaches it, then it has the same keys, which expire when
// they would have. At the end the artifact goes with its backup.
func TestBackup(t *testing.T) {
	s := newSpaceAlone(t)
	s.claim()
	s.newIndex(expiring(indexManifest), "2/2", "2/2")
	s.fill()
	s.is(s.redis("expireat", "key/00000007", "33000000000"), "1")
	all := s.dmindex("scan")
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	s.kubectl("create", "secret", "generic", "identities", "--from-literal=identities="+identity.String())
	s.apply(backupManifest)
	s.kubectl("wait", "dmb/b", "--for=condition=Complete", "--timeout=100s")
	s.is(s.jsonpath("dmb/b", "{.status.keys}"), "5000")
	s.contains(s.jsonpath("dmb/b", "{.status.digest}"), "sha256:")
	artifact := s.jsonpath("dmb/b", "{.status.artifact}")
	s.viewer()
	s.contains(s.plugin("status", "x"), "\nbackups:\nBACKUP  PHASE     BEGUN")
	s.contains(s.plugin("status"), "LAST BACKUP\n")

	s.kubectl("delete", "pod/tools", "dmi/x", "--timeout=100s")
	s.kubectl("wait", "pods", "--for=delete", "-l", "dmindex.io/pool", "--timeout=100s")
	s.newIndex(strings.Replace(expiring(indexManifest), "durability: Memory", "durability: Memory\n  recovery: {fromBackup: {name: b}}", 1), "2/2", "2/2")
	if now := s.dmindex("scan"); now != all {
		t.Errorf("the index has %d bytes of keys and values, had %d", len(now), len(all))
	}
	s.is(s.redis("get", "key/00004711"), "value of key/00004711")
	s.is(s.redis("expiretime", "key/00000007"), "33000000000")

	s.contains(s.plugin("status", "x"), "the index was loaded from backup b ("+artifact+")")

	file := "/var/lib/" + s.namespace + "/" + artifact
	s.node("exec", "1", "grep", "-q", "age-encryption.org/v1", file)
	s.node("exec", "1", "sh", "-c", "! grep -q 'value of key' "+file)
	s.kubectl("delete", "dmb/b", "--timeout=100s")
	s.node("exec", "1", "test", "!", "-e", file)
}

// TestBackupSchedule makes a backup each minute, twice.
func TestBackupSchedule(t *testing.T) {
	s := newSpaceAlone(t)
	s.claim()
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	s.apply(`
apiVersion: dmindex.io/v1alpha1
kind: DMBackupSchedule
metadata: {name: often}
spec:
  schedule: "* * * * *"
  spreadSeconds: 0
  template:
    indexName: x
    storage: {volume: {claimName: dumps}}
`)
	s.eventually(2*long, "two backups are complete", func() (bool, string) {
		saw := s.jsonpath("dmbs/often", "{.status}")
		return s.jsonpath("dmbs/often", "{.status.complete}") >= "2", saw
	})
}
