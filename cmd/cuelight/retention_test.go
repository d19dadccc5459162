package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/stages/video"
)

func TestRetention_ParsesDaysAndDurations(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"30d": "30d", "0": "0", "0d": "0", "12h": "12h0m0s", "48h": "2d", "1.5d": "36h0m0s", "90m": "1h30m0s", "-1s": "0", "36500d": "36500d",
	} {
		var r retention
		if err := r.Set(in); err != nil || r.String() != want {
			t.Errorf("%q is %s, %v; want %s", in, &r, err, want)
		}
		again := retention(-1)
		if err := again.Set(r.String()); err != nil || again != r {
			t.Errorf("%s is not parsed as itself: %s, %v", &r, &again, err)
		}
	}
	for _, in := range []string{"", "d", "30", "thirty", "1e9d", "40000d", "NaNd", "30 d"} {
		if r := retention(7); r.Set(in) == nil || r != 7 {
			t.Errorf("%q is accepted as %s", in, &r)
		}
	}
}

func TestRetentions_AreForEverWith0(t *testing.T) {
	t.Parallel()
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	r := addRetentionFlags(f)
	o := r.options(video.Config{}, nil)
	if o.KeepFinished != 0 || o.KeepDead != 0 || o.KeepDeleted != 30*day || o.KeepWorkers != 90*day ||
		time.Duration(r.audit) != 730*day {
		t.Errorf("by default %+v", o)
	}
	if err := f.Parse([]string{"--keep-deleted=0", "--keep-workers=0", "--keep-audit=0", "--keep-events=0", "--keep-finished=2d",
		"--keep-dead=3d", "--keep-deliveries=0", "--keep-dead-deliveries=4h"}); err != nil {
		t.Fatal(err)
	}
	o = r.options(video.Config{}, nil)
	if o.KeepFinished != 2*day || o.KeepDead != 3*day || o.KeepDeleted >= 0 || o.KeepWorkers >= 0 || r.audit != 0 ||
		r.events.orForEver() >= 0 || r.deliveries.orForEver() >= 0 || r.deadDeliveries.orForEver() != 4*time.Hour {
		t.Errorf("with flags %+v, %+v", o, r)
	}
}
