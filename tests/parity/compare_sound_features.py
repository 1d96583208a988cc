"""Compares our LogMel and mfcc() with the same, written with numpy from their definitions.

python compare_sound_features.py PATH_OF_SOUND_FEATURES
"""

import subprocess
import sys

import numpy as np

# rate, window, hop, n_fft, n_mels, f_min, f_max, n_coefficients
CASES = [
    (16000, 400, 160, 512, 40, 20, 8000, 13),
    (8000, 200, 80, 256, 23, 0, 4000, 23),
    (8000, 256, 100, 256, 10, 300, 3400, 5),
    (44100, 1024, 512, 4096, 80, 50, 20000, 20),
]


def ours(program, case, sound):
    done = subprocess.run(
        [program, *map(str, case)],
        input="\n".join(map(repr, sound.tolist())),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
    half = len(lines) // 2
    return np.array(lines[:half]), np.array(lines[half:])


def mel(frequency):
    return 2595 * np.log10(1 + frequency / 700)


def filters(case):
    rate, _, _, n_fft, n_mels, f_min, f_max, _ = case
    corners = 700 * (10 ** (np.linspace(mel(f_min), mel(f_max), n_mels + 2) / 2595) - 1)
    bins = np.linspace(0, rate / 2, n_fft // 2 + 1)
    rising = (bins[:, None] - corners[:-2]) / np.diff(corners)[:-1]
    falling = (corners[2:] - bins[:, None]) / np.diff(corners)[1:]
    return np.maximum(0, np.minimum(rising, falling))


def numpys(case, sound):
    _, window, hop, n_fft, n_mels, _, _, n_coefficients = case
    starts = range(0, len(sound) - window + 1, hop)
    frames = np.array([sound[start : start + window] for start in starts], dtype=np.float64)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    power = np.abs(np.fft.rfft(frames * hann, n_fft)) ** 2
    log_mel = np.log(np.maximum(power @ filters(case), 1e-10))
    angles = np.pi / n_mels * (np.arange(n_mels) + 0.5)
    cosines = np.cos(angles[:, None] * np.arange(n_coefficients)) * np.sqrt(2 / n_mels)
    cosines[:, 0] /= np.sqrt(2)
    return log_mel, log_mel @ cosines


def main():
    program = sys.argv[1]
    rng = np.random.default_rng(1)
    failed = False
    for case in CASES:
        seconds = np.arange(case[0] // 4) / case[0]
        sound = np.sin(2 * np.pi * 440 * seconds * (1 + seconds)) + 0.1 * rng.normal(
            size=len(seconds)
        )
        sound = sound.astype(np.float32)
        for name, mine, theirs in zip(
            ("log mel", "mfcc"), ours(program, case, sound), numpys(case, sound), strict=True
        ):
            equal = mine.shape == theirs.shape
            worst = np.max(np.abs(mine - theirs)) if equal else np.inf
            print(f"{case}: {name} {mine.shape}, largest difference {worst:.2e}")
            failed = failed or worst > 1e-5
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
