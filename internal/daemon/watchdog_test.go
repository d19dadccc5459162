package daemon

import (
	"bytes"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func TestWatchdog_NamesLoopsThatAreStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p watchdog
		if s := p.stuck(); len(s) > 0 {
			t.Errorf("stuck before anything began: %v", s)
		}
		p.recordIteration("dispatcher")
		p.recordIteration("listener")
		for range 10 {
			time.Sleep(time.Minute)
			p.recordIteration("listener")
		}
		if s := p.stuck(); !slices.Equal(s, []string{"dispatcher"}) {
			t.Errorf("stuck are %v, want the dispatcher", s)
		}
		p.recordIteration("dispatcher")
		if s := p.stuck(); len(s) > 0 {
			t.Errorf("stuck are %v although all loops iterate", s)
		}
		time.Sleep(time.Hour)
		p.reset()
		if s := p.stuck(); len(s) > 0 {
			t.Errorf("stuck are %v after the end", s)
		}
	})
}

// The service manager restarts a process that does not feed its watchdog.
func TestDaemon_FeedsTheWatchdogUnlessALoopIsStuck(t *testing.T) {
	address := filepath.Join(t.TempDir(), "n")
	heard, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Close()
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&log), zap.InfoLevel)
	d := &Daemon{Options: Options{Engine: &Engine{}, Log: zap.New(core)}, systemd: &systemd{conn: conn}}
	defer d.systemd.close()
	fed := func() bool {
		t.Helper()
		d.feedWatchdog()
		if err := heard.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 100)
		n, err := heard.Read(text)
		return err == nil && string(text[:n]) == "WATCHDOG=1"
	}
	if !fed() {
		t.Error("it is not fed while the database is waited for")
	}
	d.Engine.watchdog.lastIteration = map[string]time.Time{
		"heartbeat": time.Now(), "listener": time.Now().Add(-2 * time.Minute),
	}
	for range 2 {
		if fed() {
			t.Error("it is fed although a loop is stuck")
		}
	}
	if n := strings.Count(log.String(), "listener"); n != 1 {
		t.Errorf("it was logged %d times, want once: %s", n, log.String())
	}
	d.Engine.watchdog.recordIteration("listener")
	if !fed() {
		t.Error("it is not fed although all loops iterate again")
	}
}
