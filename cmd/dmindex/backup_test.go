package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/api/config"
)

// readReport reads what a command of backups reported.
func readReport(t *testing.T, file string) (r config.BackupReport) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Error(err)
	}
	return r
}

// TestBackupOfAnIndex: the artifact is a dump, and what became of a command is reported, errors
// included.
func TestBackupOfAnIndex(t *testing.T) {
	from := newIndex(t, nil)
	if _, err := from.run("a\t1\nb\t2\n", "load", "-"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	report := filepath.Join(t.TempDir(), "report")
	from.want("", "backup", "create", "--dir", dir, "--artifact", "x/a.dump", "--report", report)
	info, err := os.Stat(filepath.Join(dir, "x", "a.dump"))
	if err != nil {
		t.Fatal(err)
	}
	if r := readReport(t, report); r.Keys != 2 || r.Bytes != info.Size() || len(r.Digest) != 64 || r.Error != "" {
		t.Errorf("reported %+v", r)
	}
	to := newIndex(t, nil)
	to.want("", "restore", filepath.Join(dir, "x", "a.dump"))
	to.want("a\t1\nb\t2\n", "scan")

	from.refuse("no such file", "backup", "create", "--dir", filepath.Join(dir, "missing"), "--artifact", "a.dump", "--report", report)
	if r := readReport(t, report); !strings.Contains(r.Error, "no such file") {
		t.Errorf("reported %+v", r)
	}
	from.refuse("--artifact", "backup", "create", "--dir", dir)
	nowhere := &typed{t: t, endpoint: "127.0.0.1:1"}
	nowhere.refuse("", "backup", "create", "--dir", dir, "--artifact", "b.dump", "--report", report, "--limit-time", "100ms")
	if r := readReport(t, report); r.Error == "" {
		t.Error("an index that is not there: no error is reported")
	}
}
