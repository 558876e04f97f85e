package decision

import (
	"encoding/json"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// Restore is what AnnotationRestore of an index says: which artifact this incarnation of the
// index is loaded from. It is written before the index is made, and never changed but for Done, so
// that one incarnation is never loaded from two artifacts. It has all that the Job needs: nothing
// more is asked of the DMBackup.
type Restore struct {
	Identity string             `json:"identity"` // of the index
	Source   dmv1.RestoreSource `json:"source"`   // what spec.recovery.fromBackup said
	Backup   string             `json:"backup"`
	Artifact string             `json:"artifact"`
	Digest   string             `json:"digest"`

	// Template is that of the backup: where the artifact is, and what its pods need.
	Template dmv1.BackupTemplate `json:"template"`

	// Loaded: a program of the Job has loaded all, with so many Keys. Nobody may use the index yet:
	// another pod of the Job may still do the same.
	Loaded bool   `json:"loaded,omitempty"`
	Keys   uint64 `json:"keys,omitempty"`

	Done bool `json:"done,omitempty"`
}

// RestoreOf is the record of this incarnation of an index; nil if there is none.
func RestoreOf(index *dmv1.DMIndex) *Restore {
	r := &Restore{}
	if json.Unmarshal([]byte(index.Annotations[dmv1.AnnotationRestore]), r) != nil || r.Identity != Identity(index) {
		return nil
	}
	return r
}

// Loading reports whether an index is to be loaded from a backup before it is used: until then it
// is not Available, its Service leads nowhere, and what it has is the backup's.
func Loading(index *dmv1.DMIndex) bool {
	if r := RestoreOf(index); r != nil {
		return !r.Done
	}
	return index.Annotations[dmv1.AnnotationCreated] == "" && index.Spec.Recovery.FromBackup != nil
}
