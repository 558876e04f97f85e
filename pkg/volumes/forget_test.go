package volumes

import "time"

// forget loses the memory of a copy that took over, or ends its process, while the primary before
// it stands still. All operators begin anew then, and know nothing of what was seen. A copy may
// have served by then, or not, and its pod stays. If its memory is gone nobody may go on: the
// earlier primary lacks what was answered since. If its process only ended, it says itself whether
// it had served.
func (w *world) forget() {
	w.copies = 2
	for until := w.Now() + 5*time.Second; w.Now() < until && !(w.record.Backup != Proc{} && w.inSync()); {
		w.main.Sleep(w.UpTo(20 * time.Millisecond))
	}
	if (w.record.Backup == Proc{}) || !w.inSync() {
		return
	}
	before, backup := w.record, w.find(w.record.Backup.Pod)
	w.freeze(w.find(before.Primary.Pod).server.process, 10*time.Second)
	for until := w.Now() + 5*time.Second; w.Now() < until && w.record == before; {
		w.main.Sleep(10 * time.Millisecond)
	}
	if w.record.Primary != before.Backup || (w.record.Backup != Proc{}) || backup.gone {
		return
	}
	w.main.Sleep(time.Duration(w.forgets.Int64N(int64(2 * time.Second))))
	if w.record.Number != before.Number+1 || backup.gone {
		return
	}
	if w.counts.forgotten++; w.forgets.IntN(2) == 0 {
		w.lost = true
		w.wipe(backup)
	} else if backup.server != nil {
		backup.server.process.Kill()
	}
	for _, p := range w.operators {
		p.Kill()
	}
	w.main.Sleep(2 * time.Second)
}
