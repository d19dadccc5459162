package media

import (
	"math"
	"path/filepath"
	"testing"
)

func TestMeasureLoudness_MeasuresEachStream(t *testing.T) {
	t.Parallel()
	// A sine of 997 Hz in both channels has as many LUFS as its peak has dBFS, which BS.1770 defines so.
	src := makeClip(t, "a.mkv", "-f lavfi -i sine=f=997:d=6:r=48000,volume=-5dB,aformat=channel_layouts=mono,pan=stereo|c0=c0|c1=c0 "+
		"-f lavfi -i anullsrc=d=6 -f lavfi -i sine=f=997:d=0.2 -f lavfi -i sine=f=997:d=6:r=48000,volume=-5dB,pan=5.1|FL=c0|FR=c0 "+
		"-map 0 -map 1 -map 2 -map 3 -c:a pcm_f32le")
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	if err := fastTools.MeasureLoudness(t.Context(), src, info, LadderWith(info, LadderOptions{Surround: true})); err != nil {
		t.Fatal(err)
	}
	const peak = -18.06 - 5 // ffmpeg's sine has an eighth of full scale
	tone := info.Audio[0].Loudness
	if tone == nil || !isNear(tone.Integrated, peak, 0.2) || !isNear(tone.TruePeak, peak, 0.2) {
		t.Errorf("the tone has %+v, want %.1f LUFS and dBTP", tone, peak)
	}
	for i, what := range map[int]string{1: "silence", 3: "a sound that is shorter than a block"} {
		if l := info.Audio[i].Loudness; l != nil {
			t.Errorf("%s has %+v", what, l)
		}
	}
	// The filter makes room in stereo for three channels on each side, of which two are silent.
	mixed, all, room := info.Audio[2].Loudness, info.Audio[2].SurroundLoudness, 20*math.Log10(1+math.Sqrt2)
	if all == nil || mixed == nil || !isNear(all.Integrated, peak, 0.2) || !isNear(mixed.Integrated, peak-room, 0.2) {
		t.Errorf("5.1 has %+v, and %+v in stereo; want %.1f and %.1f LUFS", all, mixed, peak, peak-room)
	}
	if info.Audio[0].SurroundLoudness != nil {
		t.Error("stereo was measured in 5.1")
	}
}

func TestGain_ReachesTheTargetUnlessPeaksWouldClip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ integrated, peak, target, want, missing float64 }{
		{-23, -10, -16, 7, 0},
		{-23, -5, -16, 4, 3},
		{-23, -0.5, -16, 0, 7}, // it is not made quieter either
		{-10, 0, -16, -6, 0},
		{-16, -3, -16, 0, 0},
		{-16, -3, 0, 0, 0}, // no target
	} {
		a := Audio{Loudness: &Loudness{Integrated: c.integrated, TruePeak: c.peak}}
		j := renditionJob{rung: Rung{Loudness: c.target}, audio: &a}
		if got := j.gain(); !isNear(got, c.want, 0.001) {
			t.Errorf("%+v: gain %g", c, got)
		}
		if got := a.QuieterThan(c.target); c.target < 0 && !isNear(got, c.missing, 0.001) {
			t.Errorf("%+v: %g dB are missing", c, got)
		}
	}
	both := Audio{Loudness: &Loudness{-20, -10}, SurroundLoudness: &Loudness{-12, -1}}
	if j := (renditionJob{rung: Rung{Loudness: -16, Channels: surround}, audio: &both}); j.gain() != -4 || both.QuieterThan(-10) != 2 {
		t.Errorf("gain of 5.1 %g, %g dB are missing", j.gain(), both.QuieterThan(-10))
	}
	if j := (renditionJob{rung: Rung{Loudness: -16}, audio: &Audio{}}); j.gain() != 0 || j.gainFactor() != 1 || gainFilter(j) != "" {
		t.Error("sound that was not measured has a gain")
	}
}

// The check of a worker's files knows the settings, and refuses files that were made with others.
func TestCheckDelivered_FollowsTheSettings(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=426x240:r=25:d=6,noise=alls=30:allf=t -f lavfi -i "+chirp+":d=6"+h264+"-c:a aac")
	for _, o := range []LadderOptions{
		{Quality: 40, Loudness: -35, AudioBitrate: 32_000}, {Quality: 15, Preset: "fast", Loudness: -9},
	} {
		h := transcodeLadder(t, src, o)
		if _, err := h.check(t.Context(), deliver(t, h.dir, h.info, h.rungs), h.out); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	quiet := transcodeLadder(t, src, LadderOptions{Loudness: -35})
	usual := transcodeHonestly(t, src)
	h := honest{src: src, info: quiet.info, rungs: quiet.rungs}
	_, err := h.check(t.Context(), deliver(t, usual.dir, usual.info, usual.rungs), usual.out)
	wantRefused(t, err, "power")
	h = honest{src: src, info: usual.info, rungs: usual.rungs}
	_, err = h.check(t.Context(), deliver(t, quiet.dir, quiet.info, quiet.rungs), quiet.out)
	wantRefused(t, err, "power")
}

func TestPosterAt_ShowsTheTime(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i color=red:s=160x120:r=10:d=3 -f lavfi -i color=blue:s=160x120:r=10:d=3 "+
		"-filter_complex [0][1]concat"+h264)
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[float64]string{0: "r", 2.9: "r", 3: "b", 6: "b", 99: "r"} { // the last one as by default
		file := filepath.Join(t.TempDir(), "poster.jpg")
		if err := fastTools.PosterAt(t.Context(), src, info, at, file); err != nil {
			t.Fatal(err)
		}
		if got := corners(t, file); got != [4]string{want, want, want, want} {
			t.Errorf("at %g s: %v, want %s", at, got, want)
		}
	}
}
