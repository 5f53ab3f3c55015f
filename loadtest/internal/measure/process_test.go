package measure

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	line := "42 (a) b) 7 (c) S 1 2 3 4 5 6 7 8 9 10 250 150 13 14 15 16 9 18 777 20 30 22"
	r, err := parseStat(line)
	if err != nil {
		t.Fatal(err)
	}
	if r.CPUSeconds != 4 || r.Threads != 9 || r.Started != 777 || r.RSSBytes != 30*int64(os.Getpagesize()) {
		t.Errorf("parseStat = %+v", r)
	}
	for _, bad := range []string{"", "42 S 1 2", "42 (x) S 1 2 3", strings.Replace(line, "250", "many", 1)} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("parseStat(%q) = nil error", bad)
		}
	}
}

func TestReadProcess(t *testing.T) {
	r, err := ReadProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self, err := ReadSelf()
	if err != nil {
		t.Fatal(err)
	}
	if r.RSSBytes == 0 || r.FDs == 0 || r.Threads == 0 || r.Started != self.Started {
		t.Errorf("ReadProcess = %+v", r)
	}
	if self.Goroutines == 0 || self.HeapBytes == 0 || self.CPUSeconds == 0 {
		t.Errorf("ReadSelf = %+v", self)
	}
	if _, err := ReadProcess(-1); err == nil {
		t.Error("ReadProcess(-1) = nil error")
	}
}

func TestReadMetrics(t *testing.T) {
	answer := "# HELP go_goroutines x\ngo_goroutines 12\ngo_memstats_heap_inuse_bytes 1.5e+06\nother{a=\"b\"} 3\n"
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	}))
	defer srv.Close()
	var r Resource
	if err := r.ReadMetrics(context.Background(), srv.Client(), srv.URL+"/"); err != nil {
		t.Fatal(err)
	}
	if r.Goroutines != 12 || r.HeapBytes != 1_500_000 {
		t.Errorf("ReadMetrics = %+v", r)
	}
	answer = "go_goroutines many\n"
	if err := r.ReadMetrics(context.Background(), srv.Client(), srv.URL); err == nil {
		t.Error("an unreadable number is no error")
	}
	status = http.StatusNotFound
	if err := r.ReadMetrics(context.Background(), srv.Client(), srv.URL); err == nil {
		t.Error("status 404 is no error")
	}
}

func TestReadMachine(t *testing.T) {
	m := ReadMachine()
	if m.Cores < 1 || m.Kernel == "" || m.Go == "" || m.MemoryBytes == 0 || m.System == "" {
		t.Errorf("ReadMachine = %+v", m)
	}
}
