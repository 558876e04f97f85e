package deviceplugin

import (
	"log/slog"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watch calls changed soon after something changes in the folders that it was given. It may miss
// changes and may call too often: its user looks from time to time in any case.
type watch struct {
	watcher *fsnotify.Watcher // nil if the system gives none
}

func newWatch(log *slog.Logger, changed func()) *watch {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("changes are seen only by looking from time to time", "error", err)
		return &watch{}
	}
	go func() {
		for {
			select {
			case _, ok := <-w.Events:
				if !ok {
					return
				}
			case _, ok := <-w.Errors: // such as an overflow: look
				if !ok {
					return
				}
			}
			changed()
		}
	}()
	return &watch{w}
}

// add watches a folder, and the folder of a file if there is one: settings are mounted as links
// that are replaced. Both can be added again and again, which finds folders that were made anew.
func (w *watch) add(folder, file string) {
	if w.watcher == nil {
		return
	}
	_ = w.watcher.Add(folder) // it may be away just now
	if file != "" {
		_ = w.watcher.Add(filepath.Dir(file))
	}
}

func (w *watch) close() {
	if w.watcher != nil {
		w.watcher.Close()
	}
}
