#!/usr/bin/env -S python3 -S
"""Never says that it is ready."""

import time

time.sleep(600)
