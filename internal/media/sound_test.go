package media

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/browsertest"
)

// beeps is sound that beeps for 50 ms at each second, and flashes a picture that is white at the same time.
func beeps(seconds int) string {
	return fmt.Sprintf("-f lavfi -i aevalsrc='0.5*sin(2*PI*1000*t)*lt(mod(t\\,1)\\,0.05)':s=48000:d=%d ", seconds)
}

func flashes(seconds int) string {
	return fmt.Sprintf("-f lavfi -i color=black:s=128x96:r=25:d=%d,drawbox=c=white:t=fill:enable='lt(mod(t\\,1)\\,0.05)' ",
		seconds)
}

// risingTimes lists when a value printed by a filter rises above a limit.
func risingTimes(t *testing.T, file, stream, kind, filter string, limit float64) []float64 {
	t.Helper()
	out := ffmpeg(t, "-i", file, "-map", stream, kind, filter, "-f", "null", "-")
	var list []float64
	at, isAbove := math.NaN(), false
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if _, text, ok := strings.Cut(line, "pts_time:"); ok {
			at, _ = strconv.ParseFloat(text, 64)
		} else if _, text, ok := strings.Cut(line, "="); ok {
			v, err := strconv.ParseFloat(text, 64)
			if err == nil && v > limit && !isAbove && (len(list) == 0 || at-list[len(list)-1] > 0.2) {
				list = append(list, at)
			}
			isAbove = err == nil && v > limit
		}
	}
	return list
}

func beepTimes(t *testing.T, file string) []float64 {
	t.Helper()
	return risingTimes(t, file, "0:a:0", "-af", "asetnsamples=240,astats=metadata=1:reset=1:measure_perchannel=none:"+
		"measure_overall=RMS_level,ametadata=mode=print:key=lavfi.astats.Overall.RMS_level:file=-", -30)
}

func flashTimes(t *testing.T, file string) []float64 {
	t.Helper()
	return risingTimes(t, file, "0:v:0", "-vf", "signalstats,metadata=mode=print:key=lavfi.signalstats.YAVG:file=-", 100)
}

// joined writes files one after the other, as recorders and `cat` do.
func joined(t *testing.T, name string, parts ...string) string {
	t.Helper()
	var all []byte
	for _, args := range parts {
		b, err := os.ReadFile(makeClip(t, "part"+filepath.Ext(name), args))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, all, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// changingSounds are sources whose channels or rate change on the way.
func changingSounds(t *testing.T) map[string]string {
	t.Helper()
	both := flashes(3) + beeps(3) + "-c:v libx264 -preset veryfast -bf 0 "
	part := func(sound string, at int) string { return fmt.Sprintf("%s%s -output_ts_offset %d", both, sound, at) }
	return map[string]string{
		"mp2.ts": joined(t, "mp2.ts", part("-c:a mp2 -ac 2", 0), part("-c:a mp2 -ac 1", 3)),
		"ac3.ts": joined(t, "ac3.ts", part("-c:a ac3 -ac 2", 0), part("-c:a ac3 -ac 6", 3), part("-c:a ac3 -ac 2", 6)),
		"aac.ts": joined(t, "aac.ts", part("-c:a aac -ac 1 -ar 44100", 0), part("-c:a aac -ac 2 -ar 48000", 3)),
		"sound.mp3": joined(t, "sound.mp3", beeps(3)+"-c:a libmp3lame -ar 44100 -ac 1 -write_xing 0 -id3v2_version 0",
			beeps(3)+"-c:a libmp3lame -ar 48000 -ac 2 -write_xing 0 -id3v2_version 0"),
		"sound.aac": joined(t, "sound.aac", beeps(3)+"-c:a aac -ac 2 -ar 44100", beeps(3)+"-c:a aac -ac 1 -ar 48000"),
		"sound.ogg": joined(t, "sound.ogg", beeps(3)+"-c:a libvorbis -ac 1 -ar 44100", beeps(3)+"-c:a libvorbis -ac 2 -ar 48000"),
	}
}

func TestTranscode_KeepsBeepsOnFlashesWhenSoundChanges(t *testing.T) {
	t.Parallel()
	for name, src := range changingSounds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := publish(t, src)
			master := filepath.Join(r.dir, MasterName)
			// Encoders begin and end with silence of up to two frames: joined sound becomes longer if it has no timestamps,
			// and otherwise is late for a moment.
			want, within := make([]float64, 6), 0.15
			for i := range want {
				want[i] = float64(i)
			}
			if r.info.Video != nil {
				want, within = flashTimes(t, master), 0.065
			}
			got := beepTimes(t, master)
			if len(got) != len(want) || len(want) < 6 {
				t.Fatalf("beeps at %.3f; want them at %.3f", got, want)
			}
			for i := range want {
				late := 0.0
				if i%3 == 0 { // the sound changes here; ffmpeg 7 is later than 5
					late = 0.02
				}
				if !isNear(got[i], want[i], within+late) {
					t.Errorf("beep %d at %.3f s; want %.3f", i, got[i], want[i])
				}
			}
		})
	}
}

func TestPlayers_ReachTheEndOfChangingSound(t *testing.T) {
	t.Parallel()
	browser := browsertest.Require(t)
	videos := make(map[string]browsertest.Video)
	for name, src := range changingSounds(t) {
		r := publish(t, src)
		videos[name] = browsertest.Video{Dir: r.dir, Length: time.Duration(r.info.Duration * float64(time.Second))}
	}
	browser.Play(t, videos, browsertest.PlayOptions{})
}

// channelClip is sound in which each channel has a tone of its own for half a second, one after the other, in a file
// that does not name the channels.
func channelClip(t *testing.T, channels int) string {
	t.Helper()
	const rate = 48000
	var raw bytes.Buffer
	for i := range channels * rate / 2 {
		for c := range channels {
			v := int16(0)
			if i/(rate/2) == c {
				v = int16(16000 * math.Sin(2*math.Pi*90*float64(i)/rate)) // a channel for low frequencies has no others
			}
			if err := binary.Write(&raw, binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "sound.raw")
	if err := os.WriteFile(file, raw.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return makeClip(t, "sound.mkv", fmt.Sprintf("-f s16le -ar %d -ac %d -i %s -c:a pcm_s16le", rate, channels, file))
}

// sideLevels are the levels in dB of the left and of the right side, in the middle of each half of a second.
func sideLevels(t *testing.T, file string) (middles [][2]float64) {
	t.Helper()
	for _, levels := range channelLevels(t, file) {
		middles = append(middles, [2]float64{levels[0], levels[1]})
	}
	return middles
}

// channelLevels are the levels in dB of all channels, in the middle of each half of a second.
func channelLevels(t *testing.T, file string) (middles [][]float64) {
	t.Helper()
	var levels [][]float64
	out := ffmpeg(t, "-i", file, "-map", "0:a:0", "-af", "asetnsamples=4800:p=0,astats=metadata=1:reset=1:"+
		"measure_overall=none:measure_perchannel=RMS_level,ametadata=mode=print:file=-", "-f", "null", "-")
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || !strings.HasPrefix(key, "lavfi.astats.") {
			continue
		}
		if strings.HasPrefix(key, "lavfi.astats.1.") {
			levels = append(levels, nil)
		}
		levels[len(levels)-1] = append(levels[len(levels)-1], v)
	}
	for i := 2; i < len(levels); i += 5 {
		middles = append(middles, levels[i])
	}
	return middles
}

func TestTranscode_LosesNoChannelWithoutAName(t *testing.T) {
	t.Parallel()
	for _, channels := range []int{1, 2, 3, 4, 5, 6, 7, 8, 10, 16} {
		t.Run(strconv.Itoa(channels), func(t *testing.T) {
			t.Parallel()
			r := publish(t, channelClip(t, channels))
			levels := sideLevels(t, filepath.Join(r.dir, MasterName))
			for c := range channels {
				isLow := c == 3 && channels >= 6 && channels <= 8 // low frequencies are left out, as everywhere
				if level := levels[c]; max(level[0], level[1]) < -40 && !isLow {
					t.Errorf("channel %d is silent: %.1f and %.1f dB", c, level[0], level[1])
				}
			}
			if channels != 3 && channels < 5 {
				return
			}
			if centre := levels[2]; channels <= 8 && !isNear(centre[0], centre[1], 0.5) {
				t.Errorf("the centre has %.1f dB on the left and %.1f dB on the right", centre[0], centre[1])
			}
		})
	}
}

func TestTranscode_JoinsMonoTracks(t *testing.T) {
	t.Parallel()
	const tones = "-f lavfi -i aevalsrc=0.3*sin(440*2*PI*t)*lt(t\\,0.5):s=48000:d=1 " +
		"-f lavfi -i aevalsrc=0.3*sin(880*2*PI*t)*gte(t\\,0.5):s=48000:d=1 "
	const silence = "-f lavfi -i anullsrc=r=48000:cl=mono:d=1 "
	picture := quarters(64, 64)
	for name, args := range map[string]string{
		"two.mov": tones + "-f lavfi -i " + picture + " -map 2 -map 0 -map 1 -c:v mjpeg -c:a pcm_s24le",
		"two.mxf": tones + "-f lavfi -i " + picture + " -map 2 -map 0 -map 1 -c:v mpeg2video -r 25 -c:a pcm_s16le",
		"four.mxf": tones + silence + "-f lavfi -i " + picture +
			" -map 3 -map 0 -map 1 -map 2 -map 2 -c:v mpeg2video -r 25 -c:a pcm_s16le",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := publish(t, makeClip(t, name, args))
			levels := sideLevels(t, filepath.Join(r.dir, MasterName))
			if left, right := levels[0], levels[1]; left[0] < -30 || left[1] > -60 || right[0] > -60 || right[1] < -30 {
				t.Errorf("levels %.1f dB; want the first tone on the left and the second on the right", levels)
			}
			if !slices.ContainsFunc(r.info.Warnings, func(w string) bool { return strings.Contains(w, "mono tracks 1 and 2") }) {
				t.Errorf("warnings %q", r.info.Warnings)
			}
		})
	}
}

func TestJoinMonoTracks_FollowsLabels(t *testing.T) {
	t.Parallel()
	mono := func(labels ...string) []Audio {
		var list []Audio
		for i, label := range labels {
			list = append(list, Audio{Index: i + 1, Codec: "pcm_s24le", Channels: 1, Layout: label, Rate: 48000, Duration: 10})
		}
		return list
	}
	titled := mono("", "")
	titled[0].Title, titled[1].Title = "Dialogue", "Music"
	languages := mono("mono", "mono")
	languages[0].Language, languages[1].Language = "eng", "deu"
	for name, tt := range map[string]struct {
		tracks []Audio
		want   string
	}{
		"two":             {mono("", ""), "[1 2] stereo"},
		"two called mono": {mono("mono", "mono"), "[1 2] stereo"},
		"right and left":  {mono("1 channels (FR)", "1 channels (FL)"), "[2 1] stereo"},
		"contradiction":   {mono("1 channels (FL)", "1 channels (FL)"), "[] 1 channels (FL); [] 1 channels (FL)"},
		"four":            {mono("", "", "", ""), "[1 2] stereo; [3 4] stereo"},
		"six":             {mono("", "", "", "", "", ""), "[1 2 3 4 5 6] 5.1"},
		"eight":           {mono("", "", "", "", "", "", "", ""), "[1 2] stereo; [3 4] stereo; [5 6] stereo; [7 8] stereo"},
		"eight with labels": {
			mono("1 channels (FL)", "1 channels (FC)", "1 channels (FR)", "1 channels (BL)", "1 channels (BR)", "1 channels (LFE)",
				"1 channels (DL)", "1 channels (DR)"),
			"[1 3 2 6 4 5] 5.1; [7 8] stereo",
		},
		"titles":    {titled, "[] ; [] "},
		"languages": {languages, "[] mono; [] mono"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			info, streams := &Info{Audio: tt.tracks}, map[int]*rawStream{}
			for _, a := range tt.tracks {
				streams[a.Index] = &rawStream{}
			}
			info.joinMonoTracks(streams)
			var got []string
			for _, a := range info.Audio {
				got = append(got, fmt.Sprint(a.Tracks, " ", a.Layout))
			}
			if text := strings.Join(got, "; "); text != tt.want {
				t.Errorf("joined %s; want %s", text, tt.want)
			}
		})
	}
}

func TestCheckAAC_FindsFramesOfOtherChannelsAndLengths(t *testing.T) {
	t.Parallel()
	for channels, first := range map[int]byte{stereo: 1, surround: 0} {
		for element := range byte(8) {
			err := checkAAC(sample{duration: 1024, isKey: true}, []byte{element << 5}, channels, false)
			if (err == nil) != (element == first || element == 4 || element == 6) {
				t.Errorf("a frame of %d channels with element %d: %v", channels, element, err)
			}
		}
	}
	data := []byte{1 << 5}
	for name, tt := range map[string]struct {
		duration   int64
		isLast, ok bool
	}{
		"whole":           {1024, false, true},
		"short":           {700, false, false},
		"of a tick":       {1, false, false},
		"long":            {2048, false, false},
		"short last":      {500, true, true},
		"last of nothing": {0, true, false},
	} {
		if err := checkAAC(sample{duration: tt.duration, isKey: true}, data, stereo, tt.isLast); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCompareLevels_FindsWrongSound(t *testing.T) {
	t.Parallel()
	source := make([]float64, 1200)
	for i := range source {
		source[i] = 1e-7
		if i%20 < 3 || i%70 < 9 {
			source[i] = 0.01
		}
	}
	change := func(do func(i int) float64) []float64 {
		list := make([]float64, len(source))
		for i := range list {
			list[i] = do(i)
		}
		return list
	}
	late := func(n int) []float64 {
		return change(func(i int) float64 { return source[max(0, i-n)] })
	}
	for name, tt := range map[string]struct {
		got  []float64
		want string
	}{
		"the same":        {source, ""},
		"much quieter":    {change(func(i int) float64 { return source[i] * 0.2 }), ""},
		"too quiet":       {change(func(i int) float64 { return source[i] * 0.05 }), "instead of 1.0000"},
		"too loud":        {change(func(i int) float64 { return source[i] * 5 }), "instead of 1.0000"},
		"one block late":  {late(1), ""},
		"late":            {late(8), "at other times than in the source, by 0.40 s"},
		"silent":          {change(func(int) float64 { return 0 }), "it is silent, but"},
		"no sound at all": {nil, "it is silent, but"},
	} {
		err := compareLevels(source, tt.got, 1)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
	}
	loud := change(func(int) float64 { return 0.01 })
	gap := slices.Clone(loud)
	for i := 100; i < 160; i++ {
		gap[i] = 0
	}
	if err := compareLevels(loud, gap, 1); err == nil || !strings.Contains(err.Error(), "silent from 5s on") {
		t.Errorf("a lost stretch: %v", err)
	}
	if err := compareLevels(gap, loud, 1); err == nil || !strings.Contains(err.Error(), "where the source is silent") {
		t.Errorf("additional sound: %v", err)
	}
}
