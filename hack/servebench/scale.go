package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func scaleRows() []row { return nil }

func ycsbRows() []row { return nil }

// cgroup is where processor limits are set, by version 1 of the kernel's control groups.
const cgroup = "/sys/fs/cgroup/cpu"

// limit bounds the processors of a server's process.
func (m *machine) limit(t *target, i, pid int, processors float64) error {
	dir := filepath.Join(cgroup, fmt.Sprintf("servebench-%d-%s-%d", os.Getpid(), t.name, i))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	const period = 10 * time.Millisecond
	for file, value := range map[string]int{"cpu.cfs_period_us": int(period.Microseconds()), "cpu.cfs_quota_us": int(float64(period.Microseconds()) * processors), "cgroup.procs": pid} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(fmt.Sprint(value)), 0o644); err != nil {
			return err
		}
	}
	return nil
}
