package media

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Some containers cannot be seeked exactly. Then the source is decoded from its start.
func TestCheckDelivered_AcceptsSourcesThatCannotBeSeeked(t *testing.T) {
	t.Parallel()
	h := makeHonest(t)
	real, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Fatal(err)
	}
	tools := deliveryTools
	tools.Cache = nil
	tools.FFmpeg = script(t, `case "$*" in *-noaccurate_seek*want.yuv*) exit 1 ;; *) exec `+real+` "$@" ;; esac`)
	if _, err := tools.CheckDelivered(t.Context(), h.src, h.info, h.rungs, deliver(t, h.dir, h.info, h.rungs), nil); err != nil {
		t.Error(err)
	}
	tools.FFmpeg = script(t, `case "$*" in *want.yuv*) exit 1 ;; *) exec `+real+` "$@" ;; esac`)
	_, err = tools.CheckDelivered(t.Context(), h.src, h.info, h.rungs, deliver(t, h.dir, h.info, h.rungs), nil)
	if refused := (*RefusedError)(nil); err == nil || errors.As(err, &refused) {
		t.Errorf("error %v; want one that does not blame the worker for a source that this host cannot decode", err)
	}
}

func TestCheckDelivered_BelievesNoClaim(t *testing.T) {
	t.Parallel()
	h := makeHonest(t)
	want, err := h.check(t.Context(), deliver(t, h.dir, h.info, h.rungs), nil)
	if err != nil {
		t.Fatal(err)
	}
	forged := Rendition{
		Name: "<b>", Playlist: "http://127.0.0.1/x", Init: "../../etc/passwd", Codecs: "x", Duration: math.NaN(),
	}
	for name, claimed := range map[string]*Output{
		"huge": {
			Decoded: math.MaxInt64, Distinct: math.MaxInt64, Expected: math.MinInt64, DecodedEnd: math.MaxFloat64, Bytes: -1,
			Duration: math.Inf(1), Video: []Rendition{forged}, Storyboard: &Storyboard{VTT: "/etc/passwd", Count: math.MaxInt},
		},
		"NaN": {Duration: math.NaN(), DecodedEnd: math.NaN()},
		"texts": {Warnings: []string{
			"<script>alert(1)</script>", "/etc/passwd", strings.Repeat("x", 1<<20), approximateColours,
		}},
		"damage":  {DecodeErrors: math.MaxInt64, Damage: &Damage{Seconds: math.NaN(), Frames: -1}, Constant: true},
		"nothing": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := h.check(t.Context(), deliver(t, h.dir, h.info, h.rungs), claimed)
			if err != nil {
				t.Fatal(err)
			}
			a, err1 := json.Marshal(got)
			b, err2 := json.Marshal(want)
			if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
				t.Errorf("output %s; want %s; %v %v", a, b, err1, err2)
			}
		})
	}
}

func TestCheckDelivered_MeasuresClaimedDamage(t *testing.T) {
	t.Parallel()
	h := makeHonest(t)
	// The worker did the first half, and says that the source ends there.
	dir, claimed := h.forge(t, "-i SRC -t LENGTH/2 -c:a copy")
	claimed.DecodeErrors, claimed.Damage = 100, &Damage{Seconds: 4, Frames: 100, Errors: 100}
	claimed.Decoded, claimed.Distinct, claimed.DecodedEnd = 101, 101, 4
	_, err := h.check(t.Context(), dir, claimed)
	wantRefused(t, err, "frames")
}

func TestCheckDelivered_DoesNotBlameTheWorkerForTheHost(t *testing.T) {
	t.Parallel()
	h := makeHonest(t)
	cancelled, cancel := background(t)
	why := errors.New("draining")
	cancel(why)
	noTool := deliveryTools
	noTool.FFmpeg = filepath.Join(t.TempDir(), "none")
	failing := deliveryTools
	failing.Cache, failing.FFmpeg = nil, script(t, "echo 'Cannot allocate memory' >&2; exit 1")
	for name, tt := range map[string]struct {
		ctx   context.Context
		tools Tools
		src   string
		want  error
	}{
		"the context ends":  {cancelled, deliveryTools, h.src, why},
		"ffmpeg is missing": {t.Context(), noTool, h.src, ErrToolMissing},
		"no memory":         {t.Context(), failing, h.src, nil},
		"no source":         {t.Context(), deliveryTools, filepath.Join(t.TempDir(), "gone.mp4"), os.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := deliver(t, h.dir, h.info, h.rungs)
			_, err := tt.tools.CheckDelivered(tt.ctx, tt.src, h.info, h.rungs, dir, h.out)
			refused := (*RefusedError)(nil)
			if err == nil || errors.As(err, &refused) || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("error %v; want %v", err, tt.want)
			}
		})
	}
}

func fmtFloat(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
