package media

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// partOf is a part of a recording: three seconds with a flash and a beep at the start of each, and other options.
func partOf(t *testing.T, name, options string) []byte {
	t.Helper()
	const signal = "-f lavfi -i color=black:s=128x96:r=25:d=3,noise=alls=30:allf=t," +
		"drawbox=c=white:t=fill:enable='lt(mod(t\\,1)\\,0.2)' " +
		"-f lavfi -i sine=f=1000:d=3,volume=0:enable='gte(mod(t\\,1)\\,0.2)' -c:v libx264 -preset veryfast -g 25 -c:a aac "
	b, err := os.ReadFile(makeClip(t, name, signal+options))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// joinedFile writes parts one after the other into a file.
func joinedFile(t *testing.T, name string, parts ...[]byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	if err := os.WriteFile(file, all, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// joinedSources are recordings of two parts with 75 frames each that ffmpeg does not read as one.
var joinedSources = map[string]struct {
	file, first, second string
	cut                 [2]int // bytes to leave out at the end of the first part, and at the start of the second
	warnings            int
}{
	"the clock starts again":       {file: "a.ts", warnings: 1},
	"the clock jumps by an hour":   {file: "a.ts", second: "-output_ts_offset 3600", warnings: 1},
	"after half a packet":          {file: "a.ts", cut: [2]int{100, 0}, warnings: 1},
	"other PIDs":                   {file: "a.ts", second: "-mpegts_start_pid 0x200 -output_ts_offset 3.1"},
	"another PID of the sound":     {file: "a.ts", second: "-streamid 1:700 -output_ts_offset 3.1"},
	"other PIDs and another clock": {file: "a.ts", second: "-mpegts_start_pid 0x200", warnings: 1},
	"another programme": {
		file: "a.ts", second: "-mpegts_start_pid 0x200 -mpegts_service_id 7 -mpegts_pmt_start_pid 0x1001", warnings: 1,
	},
	"packets with times of arrival": {
		file: "a.m2ts", first: "-mpegts_m2ts_mode 1", second: "-mpegts_m2ts_mode 1", warnings: 1,
	},
	"a program stream":                 {file: "a.mpg", first: mpeg2, second: mpeg2, warnings: 1},
	"FLV after a reconnect":            {file: "a.flv", cut: [2]int{0, 13}, warnings: 1},
	"FLV whose clock jumps by an hour": {file: "a.flv", second: "-output_ts_offset 3600", cut: [2]int{0, 13}, warnings: 1},
}

const mpeg2 = "-c:v mpeg2video -b:v 1M -c:a mp2"

func joinedSource(t *testing.T, name string) string {
	t.Helper()
	c := joinedSources[name]
	first, second := partOf(t, c.file, c.first), partOf(t, c.file, c.second)
	return joinedFile(t, c.file, first[:len(first)-c.cut[0]], second[c.cut[1]:])
}

func TestTranscode_JoinsPartsOfARecording(t *testing.T) {
	t.Parallel()
	for name, c := range joinedSources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := publish(t, joinedSource(t, name))
			if r.info.Video.Frames != 150 || r.out.Expected < 149 || !isNear(r.out.Duration, 6, 0.15) || len(r.out.Audio) != 1 {
				t.Errorf("%d of %d frames in %.3f s, %d renditions of sound; want 150 in 6 s, and 1",
					r.out.Expected, r.info.Video.Frames, r.out.Duration, len(r.out.Audio))
			}
			if len(r.info.Warnings) != c.warnings || len(r.out.Warnings) > 0 {
				t.Errorf("warnings %q, %q; want %d", r.info.Warnings, r.out.Warnings, c.warnings)
			}
			master := filepath.Join(r.dir, MasterName)
			flashes := risingTimes(t, master, "0:v", "-vf", "signalstats,metadata=mode=print:key=lavfi.signalstats.YAVG:file=-", 100)
			beeps := risingTimes(t, master, "0:a:0", "-af", "asetnsamples=480,astats=metadata=1:reset=1,"+
				"ametadata=mode=print:key=lavfi.astats.Overall.RMS_level:file=-", -40)
			if len(flashes) != 6 || len(beeps) != 6 {
				t.Fatalf("flashes at %v, beeps at %v; want 6", flashes, beeps)
			}
			for i, at := range flashes {
				if !isNear(at-flashes[0], float64(i), 0.05) || !isNear(beeps[i], at, 0.1) {
					t.Errorf("flashes at %v, beeps at %v; want one of each every second", flashes, beeps)
					break
				}
			}
		})
	}
}

// joinsOf plans the joins of a file.
func joinsOf(t *testing.T, file string) *Joins {
	t.Helper()
	raw, packets, err := fastTools.probeContent(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	joins := planJoins(raw, packets)
	if joins == nil {
		t.Fatal("no joins")
	}
	return joins
}

// ffmpeg removes jumps by the clock of one stream, and shifts the others against it at each.
func TestPlanJoins_KeepsPictureAndSoundTogetherInEveryPart(t *testing.T) {
	t.Parallel()
	part := partOf(t, "a.ts", "")
	joins := joinsOf(t, joinedFile(t, "a.ts", part, part, part, part))
	shifts := map[int]string{}
	for _, s := range joins.Splices {
		shifts[s.ID] += fmt.Sprint(s.Shift, " ")
	}
	var first, second, third int64
	if n, err := fmt.Sscan(shifts[0x100], &first, &second, &third); n != 3 || joins.Restarts != 3 || shifts[0x100] != shifts[0x101] {
		t.Fatalf("%d restarts, shifts %v, %v; want the same three for both streams", joins.Restarts, shifts, err)
	}
	// A part lasts three seconds, and the last frame of its sound a little longer, which nothing overlaps.
	if step := second - first; step < 270000 || step > 276000 || third-second != step {
		t.Errorf("shifts %v; want steps of three seconds", shifts)
	}
}

func TestJoinedInput_GivesTheSameInAnyRange(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"after half a packet", "other PIDs and another clock", "packets with times of arrival", "a program stream",
		"FLV after a reconnect",
	} {
		file := joinedSource(t, name)
		original, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		in := newJoinedInput(fileInput{file, int64(len(original))}, joinsOf(t, file))
		read := func(offset, n int) []byte {
			b := make([]byte, n)
			got, err := in.ReadAt(t.Context(), b, int64(offset))
			if want := min(n, len(original)-offset); got != want || got < n && err != io.EOF || got == n && err != nil {
				t.Fatalf("%s: %d of %d bytes at %d, %v", name, got, n, offset, err)
			}
			return b[:got]
		}
		whole := read(0, len(original))
		if string(whole) == string(original) {
			t.Errorf("%s: nothing is changed", name)
		}
		for range 500 {
			offset, n := rand.IntN(len(whole)), rand.IntN(3000)
			if got := read(offset, n); string(got) != string(whole[offset:min(len(whole), offset+n)]) {
				t.Fatalf("%s: %d bytes at %d differ from those of the whole", name, n, offset)
			}
		}
	}
}

func TestTranscode_JoinsASourceThatIsNotAFile(t *testing.T) {
	t.Parallel()
	src := joinedSource(t, "FLV after a reconnect")
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	served, _, path := serveFile(t, fastTools, src)
	dir := t.TempDir()
	out, err := served.Transcode(t.Context(), path, info, Ladder(info), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := served.Check(t.Context(), info, dir, out); err != nil || out.Expected != 150 {
		t.Errorf("%d frames, %v; want 150", out.Expected, err)
	}
}

func TestPlanJoins_TellsPausesFromJumps(t *testing.T) {
	t.Parallel()
	const tick = 90000
	run := func(from, last int64, start, end float64) clockRun { return clockRun{from, last, start, end} }
	for name, c := range map[string]struct {
		picture, sound []clockRun
		want           string // the shifts of the picture and of the sound, in seconds
	}{
		"a pause of the picture": {
			[]clockRun{run(0, 50, 0, 5), run(800, 1000, 80, 100)}, []clockRun{run(1, 1001, 0, 100)}, "[] []",
		},
		"a jump of the sound alone": {
			[]clockRun{run(0, 1000, 0, 100)}, []clockRun{run(1, 500, 0, 50), run(501, 1001, 3650, 3700)}, "[] [-3600]",
		},
		"a jump of both": {
			[]clockRun{run(0, 500, 0, 50), run(510, 1000, 3650, 3700)},
			[]clockRun{run(1, 501, 0, 50), run(505, 1001, 3650, 3700)}, "[-3600] [-3600]",
		},
		"sound that outlasts the picture": {
			[]clockRun{run(0, 500, 1, 51), run(502, 1000, 1, 51)},
			[]clockRun{run(1, 501, 1, 54), run(503, 1001, 1, 54)}, "[53] [53]",
		},
		"two jumps, the sound later than the picture": {
			[]clockRun{run(0, 500, 0, 50), run(502, 1000, 0, 50), run(1002, 1500, 0, 50)},
			[]clockRun{run(1, 520, 0, 50), run(521, 1020, 0, 50), run(1021, 1500, 0, 50)}, "[50 100] [50 100]",
		},
		"one packet with a wrong time": {
			[]clockRun{run(0, 500, 0, 50), run(501, 501, 9000, 9000.04), run(502, 1000, 50.04, 100)},
			[]clockRun{run(1, 1001, 0, 100)}, "[-8950 0] []",
		},
	} {
		raw := &rawProbe{Streams: []rawStream{
			{Index: 0, ID: "0x100", Type: "video", Codec: "h264"}, {Index: 1, ID: "0x101", Type: "audio", Codec: "aac"},
		}}
		raw.Format.Name = "mpegts"
		tracks := map[int]*trackTiming{0: {runs: c.picture}, 1: {runs: c.sound}}
		joins := planJoins(raw, &packetReader{tracks: tracks, grid: packetGrid{size: 188}})
		shifts := [2][]float64{{}, {}}
		if joins != nil {
			for _, s := range joins.Splices {
				shifts[s.ID-0x100] = append(shifts[s.ID-0x100], round3(float64(s.Shift)/tick))
			}
		}
		if got := fmt.Sprint(shifts[0], " ", shifts[1]); got != c.want {
			t.Errorf("%s: shifts %s; want %s", name, got, c.want)
		}
	}
}

func TestProbe_RejectsAClockThatStartsAgainWhereItCannotBeJoined(t *testing.T) {
	t.Parallel()
	part := partOf(t, "a.mkv", "-f matroska -live 1")
	_, err := fastTools.Probe(t.Context(), joinedFile(t, "a.mkv", part, part))
	wantRejected(t, err, "starts again after 3")
}

func TestProbe_WarnsOfAPauseInAllStreams(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mkv", "-f lavfi -i testsrc2=s=64x64:r=10:d=2,setpts='PTS+3600/TB*gte(T\\,1)' "+
		"-f lavfi -i sine=d=2,asetpts='PTS+3600/TB*gte(T\\,1)' -fps_mode passthrough"+h264+"-c:a aac")
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Warnings) != 1 || !strings.Contains(info.Warnings[0], "pause of 3600") {
		t.Errorf("warnings %q", info.Warnings)
	}
}
