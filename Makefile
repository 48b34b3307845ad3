# Everything runs in a .venv of its own; the first call of a target sets it up, later calls find the stamp and go on.
PYTHON ?= python3
BIN := .venv/bin
RUN := runs/demo
EPOCHS := 45

.PHONY: demo test notebooks lint clean

# Two threads that do not spin while they wait: on a machine whose cores are busy, spinning made the training several times
# slower; on an idle one it makes no difference.
demo: export OMP_NUM_THREADS = 2
demo: export OMP_WAIT_POLICY = passive
demo: .venv/demo.stamp
	@rm -rf $(RUN)
	$(BIN)/relbias fit -c vision/digits -c trainer/cpu --trainer.max_epochs $(EPOCHS) --run_dir $(RUN)
	$(BIN)/relbias test $(RUN)
	$(BIN)/relbias plot bias $(RUN)
	$(BIN)/relbias plot training $(RUN)

test: .venv/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow" -q

# Runs them and compares each .ipynb with the .py file beside it. After a change: $(BIN)/python .ci/notebooks.py --write
notebooks: .venv/notebooks.stamp
	OMP_NUM_THREADS=1 $(BIN)/python .ci/notebooks.py

lint: .venv/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/ty check src

# The demo needs neither the vision extra nor the test tools: it is ready sooner without them.
.venv/demo.stamp: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet -e ".[train,plot]"
	@touch $@

.venv/dev.stamp: .venv/demo.stamp
	$(BIN)/pip install --quiet -e ".[vision,graph,audio,train,plot]" --group dev
	@touch $@

.venv/notebooks.stamp: .venv/demo.stamp
	$(BIN)/pip install --quiet -e ".[vision,graph,audio,train,plot]" --group notebooks
	@touch $@

clean:
	rm -rf .venv runs dist .pytest_cache .ruff_cache .hypothesis
