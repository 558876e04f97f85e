package decision

import (
	"encoding/json"
	"errors"
	"fmt"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// BackupResult is what was written down of a complete backup; nil = it is not complete.
func BackupResult(b *dmv1.DMBackup) (*dmv1.BackupResult, error) {
	text := b.Annotations[dmv1.AnnotationBackup]
	if text == "" {
		return nil, nil
	}
	r := &dmv1.BackupResult{}
	err := json.Unmarshal([]byte(text), r)
	if err == nil && (r.Artifact == "" || len(r.Digest) != 64) {
		err = errors.New("it lacks artifact or digest")
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s of DMBackup %s cannot be read (%w): put it back as it was, or delete the DMBackup", dmv1.AnnotationBackup, b.Name, err)
	}
	return r, nil
}
