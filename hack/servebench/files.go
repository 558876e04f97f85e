package main

import "strings"

// filed are the ends of names of sides whose memory servers keep their content in files: when a
// change is on disk (memserver --persist-sync).
var filed = map[string]string{"-always": "Always", "-5ms": "5ms", "-off": "Off"}

// cutFiled is the name of a side without such an end, and what that means; empty = no files.
func cutFiled(side string) (rest, sync string) {
	for end, sync := range filed { //env:real one of them fits at most
		if rest, ok := strings.CutSuffix(side, end); ok {
			return rest, sync
		}
	}
	return side, ""
}

// fileRows are beside the same index without files. The disk is that of the directory for temporary
// files (TMPDIR).
func fileRows() (rows []row) {
	for _, end := range []string{"-always", "-5ms", "-off"} {
		side, goal := "dex-tcp"+end, map[string]float64(nil)
		if end == "-5ms" {
			goal = map[string]float64{side: 0.7}
		}
		rows = append(rows, row{name: "file-set" + end, what: "SET as in the row set, of memory servers with files, --persist-sync " + filed[end] + "; anchor: without files",
			anchor: "dex-tcp", only: side, goal: goal, needs: "redis-benchmark", keys: nearKeys, operations: 400_000, run: benchmark("SET", nearKeys, 50, 32)})
	}
	return rows
}
