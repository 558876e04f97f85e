package main

import (
	"fmt"
	"strings"
	"time"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// top is what the compute servers of some indexes do; with their namespaces if all were asked for.
func top(views []*view, all bool) string {
	var b strings.Builder
	table(&b, func(line func(...any)) {
		row := func(namespace string, columns ...any) {
			if all {
				columns = append([]any{namespace}, columns...)
			}
			line(columns...)
		}
		row("NAMESPACE", "INDEX", "COMPUTE SERVER", "STATE", "OPS/S", "SHARE OF LOAD", "CACHE HITS", "READS/OP", "CACHE", "CONNECTIONS", "FORWARDED", "ERRORS")
		for _, v := range views {
			total := v.total()
			for _, a := range v.asked {
				if a.said == nil {
					row(v.index.Namespace, v.index.Name, a.Pod, a.State, "no answer")
					continue
				}
				load := a.said.GetLoad()
				row(v.index.Namespace, v.index.Name, a.Pod, a.State, rate(load.GetOperationsPerSecond()), share(load.GetOperationsPerSecond(), total), hits(load), reads(load),
					size(a.said.CacheBytes), a.said.Connections, a.said.Forwarded, a.said.Errors)
			}
		}
	})
	return b.String()
}

// overview is a line for each index, and below what is wrong with any of them, with what it means.
func overview(views []*view, all bool, now time.Time) string {
	var b strings.Builder
	var reasons []string
	table(&b, func(line func(...any)) {
		row := func(namespace string, columns ...any) {
			if all {
				columns = append([]any{namespace}, columns...)
			}
			line(columns...)
		}
		row("NAMESPACE", "INDEX", "DESIGN", "AVAILABLE", "HEALTH", "PROGRESSING", "MEMORY", "COMPUTE", "RANGES", "LAST BACKUP")
		for _, v := range views {
			index := v.index
			available, health, progressing := "-", "-", "-"
			for _, c := range index.Status.Conditions {
				wrong := c.Status == "True"
				switch c.Type {
				case dmv1.ConditionAvailable:
					available, wrong = string(c.Status), c.Status != "True"
				case dmv1.ConditionDegraded:
					health = c.Reason
				case dmv1.ConditionProgressing:
					progressing = "-"
					if wrong {
						progressing = c.Reason
					}
				}
				if wrong {
					reasons = append(reasons, c.Reason)
				}
			}
			ranges := "-"
			if m := index.Status.Map; m != nil {
				ranges = fmt.Sprint(m.RangeCount)
			}
			last, failed := v.lastBackup(now)
			if failed != "" {
				reasons = append(reasons, failed)
			}
			row(index.Namespace, index.Name, index.Spec.Design, available, health, progressing, orDash(index.Status.MemoryReady), orDash(index.Status.ComputeReady), ranges, last)
		}
	})
	told := map[string]bool{}
	for _, r := range reasons {
		if text := explain(r, "  "); !told[r] && text != "" {
			told[r] = true
			fmt.Fprintf(&b, "\n%s\n%s", r, text)
		}
	}
	return b.String()
}
