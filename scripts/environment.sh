# Sourced by the scripts beside it: defines `prepare EXTRA`, which makes .venv and installs hogwild into it (editable).
# Does nothing, in milliseconds, when the installation is newer than the files that describe it.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$root/.venv/bin/python"

say() { printf '\033[2m==> %s\033[0m\n' "$*" >&2; }
[ -t 2 ] || say() { printf '==> %s\n' "$*" >&2; }

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11; do
        if is_recent "$candidate"; then
            command -v "$candidate"
            return
        fi
        if [ "$candidate" = "${PYTHON:-}" ]; then
            echo "PYTHON=$PYTHON is not a Python 3.11 or newer" >&2
            return 1
        fi
    done
    echo "no Python 3.11 or newer found among python3, python3.13, python3.12, python3.11: install one or set PYTHON" >&2
    return 1
}

# prepare "" installs the package; prepare test adds its test extra.
prepare() {
    local extra="$1" stamp="$root/.venv/.installed${1:+-$1}" file fresh=yes
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$root" ] || fresh=no
    for file in setup.cfg pyproject.toml constraints.txt; do
        [ "$stamp" -nt "$root/$file" ] || fresh=no
    done
    if [ $fresh = yes ] && is_recent "$python"; then
        return
    fi
    if ! is_recent "$python"; then
        local base
        base="$(find_python)"
        say "creating .venv with $("$base" --version)"
        "$base" -m venv --clear "$root/.venv"
    fi
    say "installing hogwild${extra:+ and its $extra tools} into .venv (once; some minutes on a slow line)"
    "$python" -m pip install --quiet --disable-pip-version-check -c "$root/constraints.txt" -e "$root${extra:+[$extra]}"
    echo "$root" > "$stamp"
}
